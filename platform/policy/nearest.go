package policy

// Nearest is the known word that takes the fewest changes of a letter to become word,
// the first of several; "" if all take more than most.
func Nearest(word string, known []string, most int) string {
	best, distance := "", most
	for _, k := range known {
		if d := edits(word, k); d < distance || d == distance && best == "" {
			best, distance = k, d
		}
	}
	return best
}

// edits is the Levenshtein distance.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
