//go:build !failpoints

package subscription

// failpoint does nothing in a normal build; see failpoint_on.go.
func failpoint(string) {}
