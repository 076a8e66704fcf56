package demo

import (
	"strings"
	"sync/atomic"
)

// OtherRelease makes some processes of a replay run another release of kvferry.
type OtherRelease struct {
	Path string // the kvferry binary of the other release
	// Processes are the processes that run it: their names, or the names without the number, such as "decode" for all
	// decode nodes.
	Processes []string
	// Upgrade makes a process that was killed start again with this release.
	Upgrade bool
}

// A releaseChoice chooses the release that each process of one replay runs, and counts the processes of the other
// release. A nil choice is this release.
type releaseChoice struct {
	OtherRelease
	started atomic.Int32
}

func newReleaseChoice(o *OtherRelease) *releaseChoice {
	if o == nil {
		return nil
	}
	return &releaseChoice{OtherRelease: *o}
}

// programPath returns the binary that a process runs, or "" for the binary of this process. The incarnations of a
// process count from 1.
func (r *releaseChoice) programPath(name string, incarnation int) string {
	if r == nil || r.Upgrade && incarnation > 1 {
		return ""
	}
	for _, p := range r.Processes {
		if name == p || strings.HasPrefix(name, p+"-") {
			r.started.Add(1)
			return r.Path
		}
	}
	return ""
}

// report adds to an outcome how many processes ran the other release. A replay without any has not tried the other
// release, and fails.
func (r *releaseChoice) report(o *Outcome) {
	if r == nil {
		return
	}
	if o.OtherRelease = int(r.started.Load()); o.OtherRelease == 0 {
		o.Unclean, o.OK = append(o.Unclean, "no process ran the other release: none is named "+strings.Join(r.Processes, " or ")), false
	}
}
