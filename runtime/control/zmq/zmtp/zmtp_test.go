package zmtp_test

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/runtime/control/zmq/zmtp"
)

var limits = zmtp.Limits{Frames: 4, Bytes: 64 << 10, Skip: 256 << 10}

func frames(bodies ...string) (wire []byte) {
	for i, b := range bodies {
		wire = zmtp.AppendFrame(wire, []byte(b), i < len(bodies)-1)
	}
	return wire
}

func TestMessagesComeWhole(t *testing.T) {
	long := strings.Repeat("x", 60<<10)
	wire := append(frames("", "short"), frames("", long)...)
	r := zmtp.Reader{R: bytes.NewReader(wire), Limits: limits}
	for _, want := range []string{"short", long} {
		m, err := r.Next()
		if err != nil || m.Fault != zmtp.Whole || len(m.Frames) != 2 || string(m.Frames[1]) != want {
			t.Fatalf("%d frames, fault %d, %v", len(m.Frames), m.Fault, err)
		}
	}
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

// What is too much is skipped and said, and what follows it is read.
func TestTooMuchIsSkipped(t *testing.T) {
	for name, c := range map[string]struct {
		bad   []byte
		fault zmtp.Fault
	}{
		"one frame":   {frames("", strings.Repeat("x", 65<<10)), zmtp.TooLarge},
		"in parts":    {frames("", strings.Repeat("x", 33<<10), strings.Repeat("x", 33<<10)), zmtp.TooLarge},
		"many frames": {frames("", "", "", "", "", "", ""), zmtp.TooManyFrames},
	} {
		r := zmtp.Reader{R: bytes.NewReader(append(c.bad, frames("", "next")...)), Limits: limits}
		m, err := r.Next()
		if err != nil || m.Fault != c.fault {
			t.Errorf("%s: fault %d, %v", name, m.Fault, err)
		}
		if m, err = r.Next(); err != nil || m.Fault != zmtp.Whole || string(m.Frames[1]) != "next" {
			t.Errorf("%s: then %q, %v", name, m.Frames, err)
		}
	}
}

// endless repeats one frame that has another one behind it.
type endless struct {
	frame    []byte
	readBody int
}

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = e.frame[(e.readBody+i)%len(e.frame)]
	}
	e.readBody += len(p)
	return len(p), nil
}

func TestEndlessMessagesEnd(t *testing.T) {
	for _, size := range []int{0, 1, 255, 4096, 1 << 20} {
		source := &endless{frame: zmtp.AppendFrame(nil, make([]byte, size), true)}
		r := zmtp.Reader{R: source, Limits: limits}
		if _, err := r.Next(); !errors.Is(err, zmtp.ErrUnbounded) {
			t.Errorf("frames of %d: %v", size, err)
		}
		if source.readBody > limits.Bytes+limits.Skip+1<<10 {
			t.Errorf("frames of %d: %d bytes were read", size, source.readBody)
		}
	}
}

// A length costs its sender its bytes before it costs us room.
func TestClaimedLengthsCostNothing(t *testing.T) {
	wire := []byte{2, 0, 0, 0, 0, 4, 0, 0, 0, 1, 2, 3} // 64 MiB, and three bytes of them
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := zmtp.Reader{R: bytes.NewReader(wire), Limits: zmtp.Limits{Frames: 4, Bytes: 1 << 30, Skip: 1 << 30}}
	if _, err := r.Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 256<<10 {
		t.Errorf("%d bytes were allocated", got)
	}
}

func TestRoomIsAskedForAndGivenBack(t *testing.T) {
	wire := append(frames("", strings.Repeat("x", 60<<10)), frames("", "small")...)
	left := 20 << 10
	for _, room := range []int{left, 1 << 20} {
		left = room
		r := zmtp.Reader{R: bytes.NewReader(wire), Limits: limits,
			ReserveBytes: func(n int) bool {
				if n > left {
					return false
				}
				left -= n
				return true
			},
			ReleaseBytes: func(n int) { left += n }}
		m, err := r.Next()
		if want := map[bool]zmtp.Fault{true: zmtp.NoRoom, false: zmtp.Whole}[room < 40<<10]; err != nil || m.Fault != want {
			t.Errorf("with room for %d: fault %d, %v", room, m.Fault, err)
		}
		if m, err = r.Next(); err != nil || string(m.Frames[1]) != "small" {
			t.Errorf("with room for %d: then %q, %v", room, m.Frames, err)
		}
		if left != room {
			t.Errorf("of %d only %d were given back", room, left)
		}
	}
}

// A message that is cut into small frames asks for its room, too.
func TestSmallFramesAskForRoom(t *testing.T) {
	part := strings.Repeat("x", 16<<10)
	asked := 0
	r := zmtp.Reader{R: bytes.NewReader(frames(part, part, part, part)), Limits: limits,
		ReserveBytes: func(n int) bool { asked += n; return true }, ReleaseBytes: func(int) {}}
	if m, err := r.Next(); err != nil || len(m.Frames) != 4 || asked != 3*len(part) {
		t.Errorf("%d frames, and %d bytes were asked for: %v", len(m.Frames), asked, err)
	}
}

func TestPingsAreAnsweredAmongFrames(t *testing.T) {
	var wire []byte
	wire = append(wire, zmtp.AppendFrame(nil, nil, true)...)
	wire = append(wire, "\x04\x0a\x04PING\x00\x64abc"...)
	wire = append(wire, frames("body")...)
	var answer []byte
	r := zmtp.Reader{R: bytes.NewReader(wire), Limits: limits, SendPong: func(b []byte) { answer = b }}
	if m, err := r.Next(); err != nil || len(m.Frames) != 2 {
		t.Fatal(m, err)
	}
	if string(answer) != "\x04\x08\x04PONGabc" {
		t.Errorf("answered %q", answer)
	}
}

func TestWhoSpeaksSomethingElseIsTold(t *testing.T) {
	good := zmtp.AppendGreeting(nil)
	with := func(at int, b ...byte) []byte {
		g := bytes.Clone(good)
		copy(g[at:], b)
		return g
	}
	for want, wire := range map[string][]byte{
		"another protocol":  []byte("GET / HTTP/1.1\r\n"),
		"ZMTP version 1":    with(10, 1),
		`mechanism "PLAIN"`: with(12, []byte("PLAIN")...),
		"unexpected EOF":    good[:20],
	} {
		if _, err := zmtp.ReadGreeting(bytes.NewReader(wire)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	if pings, err := zmtp.ReadGreeting(bytes.NewReader(good)); err != nil || !pings {
		t.Error(pings, err)
	}
	for want, wire := range map[string]string{
		"before the handshake": "\x00\x01x",
		"instead of READY":     "\x04\x06\x05ERROR",
		"cut short":            "\x04\x09\x05READY\x0bSo",
		"name has":             "\x04\x03\x09ab",
	} {
		if _, err := zmtp.ReadReady(strings.NewReader(wire)); !errors.Is(err, zmtp.ErrProtocol) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	if kind, err := zmtp.ReadReady(bytes.NewReader(zmtp.AppendReady(nil, "ROUTER"))); err != nil || kind != "ROUTER" {
		t.Error(kind, err)
	}
}
