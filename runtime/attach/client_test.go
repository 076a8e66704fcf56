package attach

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// A client is an engine's end, as docs/protocol-agent.md has it: no window of its own, one goroutine.
type client struct {
	t     fataler
	path  string
	conn  *net.UnixConn
	told  protocol.AttachResponse
	mem   []byte
	last  uint64
	ended []uint64                          // calls that the agent is to forget
	early map[uint64]*protocol.EngineAnswer // answers to calls that nobody waited for yet
	back  map[uint64]bool                   // calls whose memory is back
	shows []protocol.EngineShow
}

// A fataler is a test, or a process of one.
type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func attach(t fataler, path string) *client {
	t.Helper()
	c := &client{t: t, path: path, early: map[uint64]*protocol.EngineAnswer{}, back: map[uint64]bool{}}
	c.connect(protocol.AttachRequest{Version: protocol.AttachVersion, Name: []byte("test")})
	if c.told.Code != 0 {
		t.Fatalf("not attached: %v, %s", effects.Code(c.told.Code), c.told.Reason)
	}
	return c
}

// connect attaches, and maps the memory if that is told.
func (c *client) connect(hello protocol.AttachRequest) {
	c.t.Helper()
	conn, err := net.Dial("unix", c.path)
	if err != nil {
		c.t.Fatal(err)
	}
	c.conn = conn.(*net.UnixConn)
	c.write(hello.Append(nil))
	head, rights := make([]byte, protocol.FrameBytes), make([]byte, unix.CmsgSpace(4))
	n, oob, _, _, err := c.conn.ReadMsgUnix(head, rights)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := io.ReadFull(c.conn, head[n:]); err != nil {
		c.t.Fatal(err)
	}
	body := make([]byte, binary.LittleEndian.Uint32(head))
	if _, err := io.ReadFull(c.conn, body); err != nil {
		c.t.Fatal(err)
	}
	if err := c.told.Decode(body, nil); err != nil {
		c.t.Fatal(err)
	}
	c.told.Reason = slices.Clone(c.told.Reason)
	if c.told.Code == 0 {
		c.mapFile(rights[:oob])
	}
}

func (c *client) mapFile(rights []byte) {
	c.t.Helper()
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(messages) != 1 {
		c.t.Fatalf("%d control messages, %v", len(messages), err)
	}
	files, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(files) != 1 {
		c.t.Fatalf("%d files, %v", len(files), err)
	}
	defer unix.Close(files[0])
	if c.mem != nil {
		return // The same file.
	}
	size := int(c.told.Offset + uint64(c.told.Pages)*c.told.PageBytes)
	if c.mem, err = unix.Mmap(files[0], 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		c.t.Fatal(err)
	}
}

// page is the memory of a page of the pool.
func (c *client) page(i uint64) []byte {
	from := c.told.Offset + i*c.told.PageBytes
	return c.mem[from : from+c.told.PageBytes]
}

func (c *client) write(body []byte) {
	c.t.Helper()
	if _, err := c.conn.Write(protocol.AppendFrame(nil, body)); err != nil {
		c.t.Fatal(err)
	}
}

// begin sends a call and returns its number.
func (c *client) begin(op protocol.CallOp, call protocol.EngineCall) uint64 {
	c.t.Helper()
	c.last++
	call.ID, call.Op = c.last, []byte(op.String())
	c.write(call.Append(nil))
	return call.ID
}

// call sends a call and waits for its answer.
func (c *client) call(op protocol.CallOp, call protocol.EngineCall) *protocol.EngineAnswer {
	c.t.Helper()
	return c.answer(c.begin(op, call))
}

// ok is call for one that must end well.
func (c *client) ok(op protocol.CallOp, call protocol.EngineCall) *protocol.EngineAnswer {
	c.t.Helper()
	a := c.call(op, call)
	if a.Code != 0 {
		c.t.Fatalf("%v: %s", op, said(a))
	}
	return a
}

func said(a *protocol.EngineAnswer) string {
	return fmt.Sprintf("%v: %s is %s, want %s; %s %s", effects.Code(a.Code), a.Field, a.Theirs, a.Ours, a.Remedy, a.Said)
}

// answer waits for the answer to a call.
func (c *client) answer(id uint64) *protocol.EngineAnswer {
	c.t.Helper()
	for c.early[id] == nil {
		c.hear()
	}
	a := c.early[id]
	delete(c.early, id)
	c.ended = append(c.ended, id)
	return a
}

// done are the calls that have ended since it was called last.
func (c *client) done() []uint64 {
	ended := c.ended
	c.ended = nil
	return ended
}

// returned waits until the memory of a call is back.
func (c *client) returned(id uint64) {
	c.t.Helper()
	for !c.back[id] {
		c.hear()
	}
}

// hear takes one message.
func (c *client) hear() {
	c.t.Helper()
	head := make([]byte, protocol.FrameBytes)
	if _, err := io.ReadFull(c.conn, head); err != nil {
		c.t.Fatal(err)
	}
	body := make([]byte, binary.LittleEndian.Uint32(head))
	if _, err := io.ReadFull(c.conn, body); err != nil {
		c.t.Fatal(err)
	}
	tag, err := protocol.PeekTag(body, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	m := protocol.NewMessage(tag)
	if err := m.Decode(body, nil); err != nil {
		c.t.Fatal(err)
	}
	switch m := m.(type) {
	case *protocol.EngineAnswer:
		c.early[m.ID] = m
	case *protocol.EngineShow:
		c.shows = append(c.shows, *m)
	case *protocol.EngineReturned:
		c.back[m.ID] = true
	default:
		c.t.Fatalf("%v came", tag)
	}
}

func (c *client) close() { _ = c.conn.Close() }

// free unmaps the memory.
func (c *client) free(t testing.TB) {
	c.close()
	if err := unix.Munmap(c.mem); err != nil {
		t.Error(err)
	}
}
