package pg

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// executable is what to start to run this program again. The link works even
// if the file is gone, as a test binary's soon is, and runs the same version
// even if the file has been replaced.
func executable() (string, error) { return "/proc/self/exe", nil }

// serverAttr runs a child as cred and stops it, should we be killed.
func serverAttr(cred *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: cred, Pdeathsig: syscall.SIGINT}
}

// arguments is a process's command line, "" if it has ended.
func arguments(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	return string(bytes.ReplaceAll(text, []byte{0}, []byte{' '}))
}
