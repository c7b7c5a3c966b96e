package lab

import (
	"runtime"
	"time"
)

// Meter times the measured part of a run and says who used the CPU in it: this
// process, the servers and processes it was told about, and everything else.
// What is foreign makes a run worthless when it is much.
type Meter struct {
	pids    []int // roots of process trees that belong to the run
	began   time.Time
	before  usage
	used    usage
	wall    time.Duration // what used is of
	elapsed time.Duration // what the run takes as its length
}

type usage struct{ machine, self, ours float64 } // CPU seconds

// Own counts a process and all its descendants as part of the run.
func (m *Meter) Own(pid int) {
	if pid > 0 {
		m.pids = append(m.pids, pid)
	}
}

// Start begins the measured part.
func (m *Meter) Start() {
	m.before = m.now()
	m.began = time.Now()
}

// Stop ends the measured part.
func (m *Meter) Stop() { m.StopAfter(time.Since(m.began)) }

// StopAfter ends the measured part with a length that the run measured itself.
func (m *Meter) StopAfter(elapsed time.Duration) {
	m.elapsed = elapsed
	after := m.now()
	m.used = usage{after.machine - m.before.machine, after.self - m.before.self, after.ours - m.before.ours}
	m.wall = time.Since(m.began)
}

func (m *Meter) now() usage { return usage{machineCPU(), selfCPU(), treesCPU(m.pids)} }

func (m *Meter) report(ops int, set func(string, float64)) {
	set("seconds", m.elapsed.Seconds())
	set("rate", float64(ops)/m.elapsed.Seconds())
	set("client_cpu_s", m.used.self)
	set("total_cpu_s", m.used.machine)
	if len(m.pids) > 0 && m.wall > 0 {
		set("foreign_cpu", max(0, m.used.machine-m.used.self-m.used.ours)/(m.wall.Seconds()*float64(runtime.NumCPU())))
	}
}
