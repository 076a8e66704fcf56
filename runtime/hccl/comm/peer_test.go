//go:build cgo && linux

package comm

import (
	"bytes"
	"errors"
	"syscall"
	"testing"

	"github.com/kvferry/kvferry/runtime/acl"
)

// A stopped target does not delay a transfer, because its process takes no part.
func TestTargetThatIsStopped(t *testing.T) {
	for name, hidden := range generations {
		t.Run(name, func(t *testing.T) {
			l, e := pair(t, RoCE, hidden...)
			if l.far {
				l.await()
				l.tell(bytes.Equal(e.read(0, 2*mib), pattern(2*mib, 5)))
				return
			}
			e.write(0, pattern(2*mib, 5))
			process := l.cmd.Process
			if err := process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			err := e.put(Desc{e.device.Address(), e.peer.Device, 2 * mib})
			if err := process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			if err != nil {
				t.Error(err)
			}
			l.step()
			var same bool
			if l.hear(&same); !same {
				t.Error("other bytes came")
			}
		})
	}
}

// A target is killed during a put: the put fails, the communicator can be closed, and a communicator with a new name
// meets the next process.
func TestTargetThatIsKilled(t *testing.T) {
	for name, hidden := range generations {
		t.Run(name, func(t *testing.T) {
			var e *end
			for _, name := range []string{"first", "second"} {
				l := split(t)
				rank := uint32(0)
				if l.far {
					l.hear(&name)
					rank = 1
				} else {
					l.tell(name)
				}
				if e == nil {
					e = newEnd(newRig(t, hidden...), 0)
				}
				if err := e.join(options(t, RoCE, rank, name)); err != nil {
					t.Fatal(err)
				}
				l.tell(e.pools())
				l.hear(&e.peer)
				switch {
				case l.far:
					l.await() // the first is killed here
					return
				case name == "first":
					e.loseTarget(l)
				default:
					if err := e.put(Desc{e.device.Address(), e.peer.Device, 2 * mib}); err != nil {
						t.Errorf("to the next process: %v", err)
					}
					l.step()
				}
			}
		})
	}
}

// loseTarget kills the target during a put, and closes the communicator and the stream.
func (e *end) loseTarget(l *line) {
	t := e.t
	e.control("faults done:hang=1") // held until the target is dead, so that the put is in flight then
	outcome := make(chan error, 1)
	e.do(func(t *acl.Thread) error {
		put := e.comm.Put(t, e.stream, []Desc{{e.device.Address(), e.peer.Device, 2 * mib}})
		return errors.Join(put, e.stream.Notify(t, func(err error) { outcome <- err }))
	})
	l.kill()
	e.control("clear") // first, so that the put does not begin to hang after the release
	e.control("release")
	if err := <-outcome; !errors.Is(err, acl.Link) {
		t.Errorf("the put ended as %v, want a failure of the link", err)
	}
	apart(t, e.ctx, func(at acl.Current) error {
		wantCode(t, e.comm.AsyncError(at), 21, "HcclGetCommAsyncError")
		return nil
	})
	if err := e.shut(); err != nil {
		t.Errorf("closing: %v", err)
	}
	e.do(e.stream.Close)
	e.do(func(t *acl.Thread) (err error) { e.stream, err = t.NewStream(acl.StreamOptions{}); return err })
}
