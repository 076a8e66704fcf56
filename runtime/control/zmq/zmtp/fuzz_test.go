package zmtp_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/kvferry/kvferry/runtime/control/zmq/zmtp"
)

// narrow limits are reached by short inputs. A server skips what is too much, so that it can say so; whoever was
// answered too much has nothing to say, and skips nothing.
var (
	narrow = zmtp.Limits{Frames: 3, Bytes: 40 << 10, Skip: 8 << 10}
	asker  = zmtp.Limits{Frames: 2, Bytes: 40 << 10}
)

// counting counts what was read of a connection.
type counting struct {
	r io.Reader
	n int
}

func (c *counting) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += n
	return n, err
}

// known says whether err is one that a connection may end with: each is told to somebody, who must know whose fault it
// is.
func known(err error) bool {
	return slices.ContainsFunc([]error{zmtp.ErrProtocol, zmtp.ErrSocketType, zmtp.ErrUnbounded, zmtp.ErrRefused, io.EOF,
		io.ErrUnexpectedEOF},
		func(fine error) bool { return errors.Is(err, fine) })
}

// listen reads all messages, and holds the reader to its limits. It returns what they were and how they ended.
func listen(t *testing.T, source io.Reader, limits zmtp.Limits, room int) (heard []string) {
	in := &counting{r: source}
	free, start, pongs := room, 0, 0
	r := zmtp.Reader{R: in, Limits: limits,
		ReserveBytes: func(n int) bool {
			switch taken := room - free + n; {
			case n <= 0:
				t.Fatalf("room for %d bytes is asked for", n)
			case taken > in.n-start:
				t.Fatalf("room for %d bytes after %d have come", taken, in.n-start)
			case n > free:
				return false
			}
			free -= n
			return true
		},
		ReleaseBytes: func(n int) { free += n },
		SendPong: func(b []byte) {
			if pongs++; len(b) > 64 {
				t.Fatalf("a PING is answered with %d bytes", len(b))
			}
		}}
	for {
		begun, unexpectedEnd := 0, 0
		r.OnStart, r.OnEnd = func() { begun++ }, func() { unexpectedEnd++ }
		start = in.n
		m, err := r.Next()
		size, held := 0, 0
		for _, f := range m.Frames {
			size, held = size+len(f), held+cap(f)
		}
		switch {
		case len(m.Frames) > limits.Frames, size > limits.Bytes:
			t.Fatalf("%d frames of %d bytes were kept", len(m.Frames), size)
		case err == nil && m.Size > uint64(limits.Bytes+limits.Skip):
			t.Fatalf("a message of %d bytes was read to its end", m.Size)
		case err == nil && limits.Skip == 0 && m.Fault != zmtp.Whole:
			t.Fatalf("a message with the fault %d was read to its end", m.Fault)
		case held > 2*limits.Bytes+limits.Frames*64:
			t.Fatalf("%d bytes are held for %d", held, size)
		case err != nil && !known(err):
			t.Fatalf("it ended with %v", err)
		case err == nil && (begun != 1 || unexpectedEnd != 1), begun > 1, unexpectedEnd > begun:
			t.Fatalf("a message began %d times and ended %d times: %v", begun, unexpectedEnd, err)
		case err == nil && m.Fault == zmtp.Whole:
			same(t, m, limits, size)
		case err == nil && m.Fault == zmtp.NoRoom && room > 2*limits.Bytes:
			t.Fatal("there was room")
		}
		if err != nil {
			r.Release()
			if free != room {
				t.Fatalf("%d bytes of room were not given back", room-free)
			}
			return append(heard, err.Error())
		}
		heard = append(heard, fmt.Sprint(m.Fault, m.Size, len(m.Frames), pongs))
	}
}

// same says that a whole message is read again as it is when it is written.
func same(t *testing.T, m zmtp.Message, limits zmtp.Limits, size int) {
	if len(m.Frames) == 0 || m.Size != uint64(size) {
		t.Fatalf("a whole message of %d frames has %d bytes and says %d", len(m.Frames), size, m.Size)
	}
	var wire []byte
	for i, f := range m.Frames {
		wire = zmtp.AppendFrame(wire, f, i < len(m.Frames)-1)
	}
	r := zmtp.Reader{R: bytes.NewReader(wire), Limits: limits}
	again, err := r.Next()
	if err != nil || len(again.Frames) != len(m.Frames) {
		t.Fatalf("written and read again it has %d frames of %d: %v", len(again.Frames), len(m.Frames), err)
	}
	for i, f := range m.Frames {
		if !bytes.Equal(again.Frames[i], f) {
			t.Fatalf("frame %d is another when it is written and read again", i)
		}
	}
}

// Whatever comes after a handshake: no panic, no limit crossed, no room kept, and the same messages however their bytes
// are cut.
func FuzzReader(f *testing.F) {
	long := bytes.Repeat([]byte("x"), 30<<10)
	claimed := func(flags byte, size uint64) []byte { return binary.BigEndian.AppendUint64([]byte{flags}, size) }
	for _, seed := range [][]byte{
		nil,
		frames("", "body"),
		frames("peer", "", "body"),
		frames("", string(long)),
		append(frames(string(long), string(long)), frames("", "next")...), // Too large, and one after it.
		append(frames("", "", "", "", ""), frames("", "next")...),         // Too many.
		bytes.Repeat(zmtp.AppendFrame(nil, nil, true), 2000),              // Without end.
		claimed(2, 1<<62), claimed(3, 1<<63), claimed(2, 40<<10), claimed(6, 4097),
		append(claimed(3, 1<<62), "some"...),
		append(claimed(2, 40<<10), long[:20<<10]...), // Half of what was said.
		append(zmtp.AppendPing(zmtp.AppendFrame(nil, nil, true), 100), frames("body")...),
		[]byte("\x04\x0a\x04PING\x00\x64abc\x04\x05\x04PONG"),
		[]byte("\x04\x06\x05ERROR"), []byte("\x05\x06\x05READY"), []byte("\x04\x00"), []byte("\x80\x00"),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		for _, limits := range []zmtp.Limits{narrow, asker} {
			for _, room := range []int{1 << 20, 24 << 10, 0} {
				at := listen(t, bytes.NewReader(wire), limits, room)
				cut := listen(t, iotest.HalfReader(bytes.NewReader(wire)), limits, room)
				if fmt.Sprint(at) != fmt.Sprint(cut) {
					t.Fatalf("at once: %q\nin parts: %q", at, cut)
				}
			}
		}
	})
}

// ends are the sides of a handshake: two that serve and two that call, with those that they talk to.
var ends = map[string][]string{
	"ROUTER": {"REQ", "DEALER", "ROUTER"}, "PULL": {"PUSH"},
	"DEALER": {"REP", "ROUTER", "DEALER"}, "PUSH": {"PULL"},
}

// Whatever comes first, whether we serve or call: no panic, no more read than a greeting and one command of the
// longest, no more said than as much, and a reason.
func FuzzHandshake(f *testing.F) {
	greeting := zmtp.AppendGreeting(nil)
	for _, seed := range [][]byte{
		nil,
		zmtp.AppendReady(greeting, "REQ"),
		append(zmtp.AppendReady(greeting, "PUSH"), frames("body")...),
		zmtp.AppendReady(bytes.Clone(greeting), "REP"),
		append(zmtp.AppendReady(bytes.Clone(greeting), "ROUTER"), frames("", "an answer before any question")...),
		zmtp.AppendReady(bytes.Clone(greeting), "PULL"),
		append(bytes.Clone(greeting), "\x04\x0c\x05ERROR\x05sorry"...),
		[]byte("GET / HTTP/1.1\r\n\r\n"),
		append(bytes.Clone(greeting), "\x04\x09\x05READY\x0bSo"...),
		append(bytes.Clone(greeting), "\x04\x19\x05READY\x0bSocket-Type\xff\xff\xff\xffREQ"...),
		append(bytes.Clone(greeting), "\x06\x00\x00\x00\x00\x00\x00\x10\x01\x05READY"...),
		append(bytes.Clone(greeting), "\x04\x03\x09ab"...),
		append(append(bytes.Clone(greeting), "\x06\x00\x00\x00\x00\x00\x00\x17\x7c\x05READY\x01x\x00\x00\x17\x70"...),
			make([]byte, 6000)...),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		for ours, theirs := range ends {
			in, said := &counting{r: bytes.NewReader(wire)}, 0
			_, err := zmtp.Handshake(in, func(b []byte) { said += len(b) }, ours, theirs)
			const longest = zmtp.GreetingBytes + 9 + 4096
			switch {
			case in.n > longest || said > zmtp.GreetingBytes+64:
				t.Fatalf("%d bytes were read, and %d said", in.n, said)
			case err != nil && !known(err):
				t.Fatalf("it ended with %v", err)
			case err == nil && !bytes.Contains(wire[12:32], []byte("NULL")):
				t.Fatalf("a greeting is taken: %q", wire[:zmtp.GreetingBytes])
			case err == nil && !slices.ContainsFunc(theirs, func(kind string) bool {
				return bytes.Contains(wire[zmtp.GreetingBytes:in.n], []byte(kind))
			}):
				t.Fatalf("a %s takes what is none of %q: %q", ours, theirs, wire[zmtp.GreetingBytes:in.n])
			}
		}
	})
}
