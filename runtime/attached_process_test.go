package runtime_test

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/internal/proctest"
)

// attached says what an engine that is a process of its own shall do with the memory of a node of its parent.
type attached struct {
	Node      int // which of those whose memory it has
	Offset    uint64
	PageBytes uint64
	Pages     uint32
	At        []place // of each key
}

// A place is one page of an engine's.
type place struct{ Index, Bytes uint32 }

// firstFile is the number of the first file that a process was started with.
const firstFile = 3

// carryOutAttached is what an engine does: Op "map" maps the memory of a node and tries what it must not be able to do,
// "fill" and "compare" are of pages, and "die" is to be killed while it fills one.
func (c *child) carryOutAttached(tb testing.TB, o *order) (w reply) {
	a := o.Attached
	if o.Op == "map" {
		mem, err := attach(firstFile+a.Node, a)
		if err != nil {
			tb.Fatal(err)
		}
		c.mapped = append(c.mapped, mem)
		return reply{Wrong: countResizes(tb, firstFile+a.Node)}
	}
	for i, at := range a.At {
		page := c.mapped[a.Node][a.Offset+uint64(at.Index)*a.PageBytes:][:at.Bytes]
		switch o.Op {
		case "fill":
			contentOf(page, o.Keys[i])
		case "die":
			contentOf(page[:len(page)/2], o.Keys[i])
			hitSelf(syscall.SIGKILL)
		case "compare":
			if w.Hits++; !isContent(page, o.Keys[i]) {
				w.Wrong++
			}
		}
	}
	return w
}

// attach maps a node's memory as an engine does that was given its file.
func attach(fd int, a *attached) ([]byte, error) {
	return syscall.Mmap(fd, 0, int(a.Offset+uint64(a.Pages)*a.PageBytes), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_SHARED)
}

// countResizes counts the ways in which a process can change the size of a node's memory.
func countResizes(tb testing.TB, fd int) (n int) {
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		tb.Fatal(err)
	}
	for _, size := range []int64{0, st.Size - 1, st.Size + 1} {
		if err := syscall.Ftruncate(fd, size); !errors.Is(err, syscall.EPERM) {
			n++
		}
	}
	return n
}

// startEngine starts a process that is the engine of nodes, and has it map their memory.
func startEngine(t *testing.T, nodes ...*runtime.Node) *process {
	t.Helper()
	cmd := proctest.SelfCommand(childRole + "=1")
	orders := make([]order, len(nodes))
	for i, n := range nodes {
		m := mustMapping(t, n)
		cmd.ExtraFiles = append(cmd.ExtraFiles, m.File)
		orders[i] = order{Op: "map", Attached: &attached{Node: i, Offset: m.Offset, PageBytes: m.PageBytes, Pages: m.Pages}}
	}
	p := &process{proctest.Start(t, cmd), t}
	for i, o := range orders {
		if w := p.perform(o); w.Wrong != 0 {
			t.Errorf("the engine can change the size of node %d in %d ways", i, w.Wrong)
		}
	}
	return p
}

func mustMapping(t *testing.T, n *runtime.Node) runtime.Mapping {
	t.Helper()
	m, err := n.Mapping()
	if err != nil {
		t.Fatal(err)
	}
	if int(m.PageBytes) != n.PageBytes() || m.Pages == 0 {
		t.Fatalf("mapping of %d pages of %d bytes, the node's have %d", m.Pages, m.PageBytes, n.PageBytes())
	}
	return m
}

// attachedTo says where pages are, to the engine of a node.
func attachedTo(t *testing.T, node int, n *runtime.Node, pages *runtime.Pages) *attached {
	t.Helper()
	m := mustMapping(t, n)
	a := &attached{Node: node, Offset: m.Offset, PageBytes: m.PageBytes, Pages: m.Pages}
	for i := range pages.Len() {
		index, bytes, err := pages.MappedPage(i)
		if err != nil {
			t.Fatal(err)
		}
		if index >= m.Pages || uint64(bytes) > m.PageBytes {
			t.Fatalf("page %d: %d bytes at %d of %d", i, bytes, index, m.Pages)
		}
		a.At = append(a.At, place{index, bytes})
	}
	return a
}

// An engine that is a process of its own fills pages and reads those that arrive. When it is killed the nodes go on,
// and another attaches.
func TestAttachedEngine(t *testing.T) {
	for _, channel := range []string{"shm", "tcp"} {
		t.Run(channel, func(t *testing.T) {
			s := open(t, senderConfig(t, channel, effects.Addr{}), runtime.WithAttachable())
			r := open(t, receiverConfig(t, channel, nil), runtime.WithAttachable())
			engine := startEngine(t, s, r)
			for _, name := range []string{"first", "second"} {
				movesAttached(t, s, r, engine, name)
			}

			pages := mustReserve(t, s, 4)
			engine.SendJSON(order{Op: "die", Attached: attachedTo(t, 0, s, pages), Keys: keysOf("lost", 4)})
			if status := engine.ExitStatus(); status.Signal() != syscall.SIGKILL {
				t.Errorf("the engine ended with %#x", status)
			}
			half, err := pages.Bytes(0)
			if err != nil || !isContent(half[:pageBytes/2], keysOf("lost", 4)[0]) {
				t.Errorf("what it stored before is gone; %v", err)
			}
			mustRelease(t, pages) // The node goes on, and its pages were never the engine's to lose.
			movesAttached(t, s, r, startEngine(t, s, r), "third")
			mustClose(t, s)
			mustClose(t, r)
		})
	}
}

// movesAttached has an engine fill pages of a sender, and read what arrived at a receiver, the last chunk a short one.
func movesAttached(t *testing.T, s, r *runtime.Node, engine *process, name string) {
	t.Helper()
	const count, lastTokens = 4, 5
	keys := keysOf(name, count)
	pages := mustReserve(t, s, count)
	engine.perform(order{Op: "fill", Attached: attachedTo(t, 0, s, pages), Keys: keys})
	res, err := s.Sender().Put(within(t), runtime.Put{Peer: peerOf(r), Request: name, Keys: keys, Pages: pages,
		LastChunkTokens: lastTokens})
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Receiver().Get(within(t), runtime.Get{Request: name, Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	wantReturned(t, res)
	overwrite(t, pages) // What arrived is the receiver's.
	mustRelease(t, pages)
	wantContent(t, got, keys, pageBytes/16*lastTokens)
	at := attachedTo(t, 1, r, got)
	if last := at.At[count-1].Bytes; last != pageBytes/16*lastTokens {
		t.Errorf("the last chunk has %d bytes", last)
	}
	if w := engine.perform(order{Op: "compare", Attached: at, Keys: keys}); w.Hits != count || w.Wrong != 0 {
		t.Errorf("the engine finds %d of %d chunks wrong", w.Wrong, w.Hits)
	}
	mustRelease(t, got)
	_, _, err = got.MappedPage(0)
	wantCode(t, err, effects.Invalid)
}

// With offload the engine's pages are not those that peers read: it is given its own, and the others are nobody's to
// write.
func TestAttachedEngineThatOffloads(t *testing.T) {
	for _, channel := range []string{"shm", "tcp"} {
		t.Run(channel, func(t *testing.T) {
			s := open(t, offloadSenderConfig(t, channel, 8, 8), runtime.WithAttachable())
			r := open(t, receiverConfig(t, channel, nil), runtime.WithAttachable())
			movesAttached(t, s, r, startEngine(t, s, r), "offload")
			mustClose(t, s)
			mustClose(t, r)
		})
	}
}

func wantNotAttachable(t *testing.T, err error) {
	t.Helper()
	if e := (*runtime.Error)(nil); !errors.As(err, &e) || e.Code != effects.Unsupported || e.Field != "WithAttachable" ||
		e.Remedy == "" {
		t.Errorf("got %v; want that the node was not opened so", err)
	}
}

func TestMappingIsRefused(t *testing.T) {
	s := open(t, senderConfig(t, "shm", effects.Addr{}))
	pages := mustReserve(t, s, 1)
	_, err := s.Mapping()
	wantNotAttachable(t, err)
	_, _, err = pages.MappedPage(0)
	wantNotAttachable(t, err)
	mustRelease(t, pages)
	mustClose(t, s)

	s = open(t, senderConfig(t, "shm", effects.Addr{}), runtime.WithAttachable())
	pages = mustReserve(t, s, 1)
	for _, i := range []int{-1, 1} {
		_, _, err = pages.MappedPage(i)
		wantCode(t, err, effects.Invalid)
	}
	mustRelease(t, pages)
	file := mustMapping(t, s).File
	mustClose(t, s)
	_, err = s.Mapping()
	wantCode(t, err, effects.Closed)
	if _, err := file.Stat(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the node's file outlives it: %v", err)
	}
}
