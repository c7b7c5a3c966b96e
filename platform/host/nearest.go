package host

import "fmt"

// didYouMean names the known word that is nearest to a mistyped one: "" if there
// are none.
func didYouMean(word string, known []string) string {
	best, distance := "", 1<<30
	for _, k := range known {
		if d := edits(word, k); d < distance {
			best, distance = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", best)
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

func envNames() []string {
	var names []string
	for _, s := range settings {
		names = append(names, s.env)
	}
	return names
}

func keys() []string {
	var names []string
	for _, s := range settings {
		if s.key != "config" {
			names = append(names, s.key)
		}
	}
	return names
}
