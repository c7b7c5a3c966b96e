package pgtest

import (
	"bytes"
	"sync"
)

// Journal keeps what is written to it, for a log that a test reads while hosts write. Its
// zero value is empty.
type Journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *Journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *Journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}
