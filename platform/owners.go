package platform

import "strings"

// Owners says which module answers for what a subscription touches (N40, N41). A
// subscription whose matrix is not complete does not run: owner_matrix_incomplete.
type Owners struct {
	SourceEvent   string // who emits the events
	SourceData    string // whose records the events point to
	Projection    string // who owns the work or projection
	Status        string // who shows its status
	Result        string // who owns the result
	Evidence      string // who keeps evidence
	SecurityEvent string // who raises security events
	HandOffs      []string
}

// OwnedBy is the matrix of a subscription all of whose seven owners are one module.
func OwnedBy(module string, handOffs ...string) Owners {
	return Owners{module, module, module, module, module, module, module, handOffs}
}

// Complete reports whether all seven owners are named.
func (o Owners) Complete() bool { return len(o.Missing()) == 0 }

// Missing names the fields of the seven that are empty.
func (o Owners) Missing() []string {
	var missing []string
	for i, owner := range o.seven() {
		if owner == "" {
			missing = append(missing, sevenNames[i])
		}
	}
	return missing
}

// none reports whether nothing is said about owners.
func (o Owners) none() bool {
	return len(o.HandOffs) == 0 && strings.Join(o.seven(), "") == ""
}

// sevenNames are the fields that seven answers.
var sevenNames = []string{"SourceEvent", "SourceData", "Projection", "Status", "Result", "Evidence", "SecurityEvent"}

func (o Owners) seven() []string {
	return []string{o.SourceEvent, o.SourceData, o.Projection, o.Status, o.Result, o.Evidence, o.SecurityEvent}
}
