package lab

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const ticks = 100 // USER_HZ, which Linux never changes for /proc

func selfCPU() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// machineCPU is what the whole machine was busy for: user, nice, system, irq and
// softirq; 0 where there is no /proc.
func machineCPU() float64 {
	text, _ := os.ReadFile("/proc/stat")
	first, _, _ := strings.Cut(string(text), "\n")
	var busy float64
	for i, field := range strings.Fields(first) {
		if slices.Contains([]int{1, 2, 3, 6, 7}, i) {
			v, _ := strconv.ParseFloat(field, 64)
			busy += v / ticks
		}
	}
	return busy
}

type process struct {
	parent int
	name   string
	cpu    float64 // with the children it has reaped
}

func readProcess(pid int) (p process, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return p, false
	}
	open, shut := strings.IndexByte(string(text), '('), strings.LastIndexByte(string(text), ')')
	fields := strings.Fields(string(text[shut+1:])) // from the third, state
	if open < 0 || len(fields) < 15 {
		return p, false
	}
	p.name = string(text[open+1 : shut])
	p.parent, _ = strconv.Atoi(fields[1])
	for _, f := range fields[11:15] { // utime stime cutime cstime
		v, _ := strconv.ParseFloat(f, 64)
		p.cpu += v / ticks
	}
	return p, true
}

// ProcessCPU is the CPU seconds of one process and the children it has reaped.
func ProcessCPU(pid int) float64 {
	p, _ := readProcess(pid)
	return p.cpu
}

func treesCPU(roots []int) float64 {
	if len(roots) == 0 {
		return 0
	}
	all := map[int]process{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if p, ok := readProcess(pid); ok {
				all[pid] = p
			}
		}
	}
	var sum float64
	for pid, p := range all {
		for up := pid; up > 0; up = all[up].parent {
			if slices.Contains(roots, up) {
				sum += p.cpu
				break
			}
		}
	}
	return sum
}

// MemoryMB reads a line of /proc/PID/status in MB: VmRSS (now) or VmHWM (the
// most there ever was); 0 if it cannot be read.
func MemoryMB(pid int, line string) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for l := range strings.Lines(string(text)) {
		if f := strings.Fields(l); len(f) >= 2 && f[0] == line+":" {
			kb, _ := strconv.ParseFloat(f[1], 64)
			return kb / 1024
		}
	}
	return 0
}
