//go:build cgo && linux

package nixlproc

import (
	"bytes"
	"errors"
	"net"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/runtime/libnixl"
)

// newHostileAgent returns an agent in a process that a peer has taken over: the test plays that process's end of the
// socket.
func newHostileAgent(t *testing.T) (a *isolatedAgent, there *net.UnixConn) {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	control, controlThere, err := socketPair(unix.SOCK_SEQPACKET)
	if err != nil {
		t.Fatal(err)
	}
	host := &isolatedHost{options: Options{CallTimeout: time.Second},
		regions: []mappedRegion{{Region{Address: 1 << 20, Bytes: 1 << 20}, 1 << 40}}}
	c := &child{host: host, control: control, process: cmd.Process, exited: make(chan struct{})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.awaitExit(cmd)
	}()
	ours, theirs, err := socketPair(unix.SOCK_STREAM)
	if err != nil {
		t.Fatal(err)
	}
	if there, err = openSocket(theirs); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.kill(errors.New("the test is over"))
		<-ended
		for _, err := range []error{ours.Close(), there.Close(), unix.Close(controlThere)} {
			if err != nil && !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		}
	})
	return &isolatedAgent{child: c, name: "a", socket: ours}, there
}

// A process that answers what no child answers is killed before the call returns.
func TestHostileAnswers(t *testing.T) {
	frame := func(b ...byte) []byte { return append([]byte{byte(len(b)), 0, 0, 0}, b...) }
	register := func(a *isolatedAgent) error {
		_, err := a.RegisterMemory(libnixl.Range{Address: 1 << 20, Bytes: 1})
		return err
	}
	notices := func(a *isolatedAgent) error {
		_, err := a.PollNotices()
		return err
	}
	metadata := func(a *isolatedAgent) error {
		_, err := a.Metadata()
		return err
	}
	check := func(a *isolatedAgent) error {
		_, err := (&isolatedTransfer{agent: a, number: 1}).Check()
		return err
	}
	for _, c := range []struct {
		name   string
		call   func(*isolatedAgent) error
		answer []byte
	}{
		{"an empty frame", register, []byte{0, 0, 0, 0}},
		{"a frame that is too long", register, []byte{255, 255, 255, 255, 0}},
		{"a frame that is cut off", register, []byte{9, 0, 0, 0, 0, 1}},
		{"nothing", register, nil},
		{"another outcome", register, frame(77)},
		{"half a number", register, frame(outcomeOK, 1, 2)},
		{"more than a number", register, frame(append([]byte{outcomeOK}, make([]byte, 9)...)...)},
		{"more notices than fit", notices, frame(outcomeOK, 255, 255, 255, 255, 0, 0, 0, 0)},
		{"a notice without a name", notices, frame(append([]byte{outcomeOK, 1}, make([]byte, 15)...)...)},
		{"no metadata", metadata, frame(outcomeOK)},
		{"a transfer that is twice done", check, frame(outcomeOK, 2, 0, 0, 0, 0, 0, 0, 0)},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, there := newHostileAgent(t)
			if _, err := there.Write(c.answer); err != nil {
				t.Fatal(err)
			}
			if err := c.call(a); !errors.Is(err, ErrEnded) {
				t.Errorf("got %v", err)
			}
			select {
			case <-a.child.exited:
			default:
				t.Error("the process lives on")
			}
		})
	}
}

// The text of an error is no more than text.
func TestHostileErrors(t *testing.T) {
	a, there := newHostileAgent(t)
	text := bytes.Repeat([]byte{0xff, 'x'}, errorMax)
	if err := writeFrame(there, append(beginFrame(outcomeFailed), text...)); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Metadata(); err == nil || len(err.Error()) > 2*errorMax || errors.Is(err, ErrEnded) {
		t.Errorf("got %v", err)
	}
}

func FuzzOperands(f *testing.F) {
	p := postRequest{sent: 1, within: 2, TransferOptions: libnixl.TransferOptions{Operation: libnixl.Write, Peer: "b",
		Notice: []byte("n"), Pairs: []libnixl.Pair{{Local: 1, Remote: 2, Bytes: 3}}}}
	f.Add(p.appendTo(nil))
	f.Add(appendRanges(nil, []libnixl.Range{{Address: 1, Bytes: 2}}))
	f.Add(appendNotices(nil, []libnixl.Notice{{Peer: "a", Bytes: []byte("b")}, {Peer: "c"}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		d := decoder{rest: b}
		if p := d.readPost(); d.checkEnd() == nil && !bytes.Equal(p.appendTo(nil), b) {
			t.Errorf("a transfer is read as another one: %q", b)
		}
		d = decoder{rest: b}
		if r := d.readRanges(); d.checkEnd() == nil && !bytes.Equal(appendRanges(nil, r), b) {
			t.Errorf("ranges are read as others: %q", b)
		}
		d = decoder{rest: b}
		if n := d.readNotices(); d.checkEnd() == nil && !bytes.Equal(appendNotices(nil, n), b) {
			t.Errorf("notices are read as others: %q", b)
		}
	})
}
