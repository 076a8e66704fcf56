//go:build cgo && linux

package nodes

import (
	"fmt"
	"os"
	goruntime "runtime"
	"strings"
	"syscall"
)

// A hitTrigger kills or freezes a process at a point of its machine: just before an effect or event of the type At is
// handled, the first time after the types in After have occurred in this order. The zero value never hits.
type hitTrigger struct {
	After  []string
	At     string // for example "Post", of package effects
	Signal syscall.Signal
}

// newHandler returns a function to be called with each event and effect, on one goroutine. The function calls hit once.
func (s *hitTrigger) newHandler(hit func(syscall.Signal)) func(what any) {
	seen, struck := 0, s.At == ""
	return func(what any) {
		name := strings.TrimPrefix(fmt.Sprintf("%T", what), "*effects.")
		switch {
		case struck:
		case seen < len(s.After):
			if name == s.After[seen] {
				seen++
			}
		case name == s.At:
			struck = true
			hit(s.Signal)
		}
	}
}

// hitSelf signals this very thread, so that nothing continues after the call.
func hitSelf(with syscall.Signal) {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	_ = syscall.Tgkill(os.Getpid(), syscall.Gettid(), with) // A signal to the own process cannot fail.
}
