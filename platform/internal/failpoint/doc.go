// Package failpoint has places at which a test lets a host be killed or stopped. In a
// normal build they are nothing; go build -tags failpoints puts them in. It imports nothing.
package failpoint
