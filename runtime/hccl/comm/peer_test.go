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
	for name, hidden := range librariesBySequence {
		t.Run(name, func(t *testing.T) {
			l, e := newPairOfProcesses(t, RoCE, hidden...)
			if l.isOther {
				l.awaitStep()
				l.sendValue(bytes.Equal(e.readDevice(0, 2*mib), pattern(2*mib, 5)))
				return
			}
			e.writeDevice(0, pattern(2*mib, 5))
			process := l.cmd.Process
			if err := process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			err := e.putBatch(Desc{e.device.Address(), e.peer.Device, 2 * mib})
			if err := process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			if err != nil {
				t.Error(err)
			}
			l.allowStep()
			var same bool
			if l.readValue(&same); !same {
				t.Error("other bytes came")
			}
		})
	}
}

// A target is killed during a put: the put fails, the communicator can be closed, and a communicator with a new name
// meets the next process.
func TestTargetThatIsKilled(t *testing.T) {
	for name, hidden := range librariesBySequence {
		t.Run(name, func(t *testing.T) {
			var e *endpoint
			for _, name := range []string{"first", "second"} {
				l := startOtherProcess(t)
				rank := uint32(0)
				if l.isOther {
					l.readValue(&name)
					rank = 1
				} else {
					l.sendValue(name)
				}
				if e == nil {
					e = newEndpoint(newRig(t, hidden...), 0)
				}
				if err := e.joinComm(commOptions(t, RoCE, rank, name)); err != nil {
					t.Fatal(err)
				}
				l.sendValue(e.poolAddresses())
				l.readValue(&e.peer)
				switch {
				case l.isOther:
					l.awaitStep() // the first is killed here
					return
				case name == "first":
					e.killTarget(l)
				default:
					if err := e.putBatch(Desc{e.device.Address(), e.peer.Device, 2 * mib}); err != nil {
						t.Errorf("to the next process: %v", err)
					}
					l.allowStep()
				}
			}
		})
	}
}

// killTarget kills the target during a put, and closes the communicator and the stream.
func (e *endpoint) killTarget(l *processLink) {
	t := e.t
	e.runCommand("faults done:hang=1") // held until the target is dead, so that the put is in flight then
	outcome := make(chan error, 1)
	e.mustDo(func(t *acl.Thread) error {
		put := e.comm.Put(t, e.stream, []Desc{{e.device.Address(), e.peer.Device, 2 * mib}})
		return errors.Join(put, e.stream.Notify(t, func(err error) { outcome <- err }))
	})
	l.killOther()
	e.runCommand("clear") // first, so that the put does not begin to hang after the release
	e.runCommand("release")
	if err := <-outcome; !errors.Is(err, acl.Link) {
		t.Errorf("the put ended as %v, want a failure of the link", err)
	}
	mustDoBlocking(t, e.ctx, func(at acl.CurrentThread) error {
		wantCode(t, e.comm.AsyncError(at), 21, "HcclGetCommAsyncError")
		return nil
	})
	if err := e.closeComm(); err != nil {
		t.Errorf("closing: %v", err)
	}
	e.mustDo(e.stream.Close)
	e.mustDo(func(t *acl.Thread) (err error) { e.stream, err = t.NewStream(acl.StreamOptions{}); return err })
}
