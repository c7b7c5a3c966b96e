//go:build unix && !linux

package pg

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// executable is what to start to run this program again.
func executable() (string, error) { return os.Executable() }

// serverAttr runs a child as cred. There is no word from the kernel when we are
// killed: the next keeper finds the server and stops it.
func serverAttr(cred *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: cred}
}

// arguments is a process's command line, "" if it has ended.
func arguments(pid int) string {
	out, err := exec.Command("ps", "-ww", "-o", "args=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return string(out)
}
