package shm

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/internal/link"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

const hostilePage = 4096

// Peers of this plane read by themselves; a peer that requests pages violates the protocol.
func TestReadRequestEndsTheLink(t *testing.T) {
	b := planetest.OpenNode(t, Open, 1, 2, hostilePage)
	a := planetest.OpenNode(t, Open, 2, 2, hostilePage) // It lends its memory to a peer that has no link to it.
	permits, err := plane.NewPermits(1)
	if err != nil {
		t.Fatal(err)
	}
	defer permits.Close()
	blob := b.Plane.Blob()
	_, name, _ := strings.Cut(string(blob[3:]), " ")
	conn, err := net.Dial("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	h := link.Hello{From: a.Inc, To: b.Inc, Buffer: a.Pool.Buffer()}
	h.Proof = h.ComputeProof(link.KindHello, planetest.Key.Token(Name, a.Inc, b.Inc), nil)
	hello := link.AppendHello(nil, link.KindHello, h)
	if err := sendWithFiles(conn, hello, a.Pool, permits.PermitsFile()); err != nil {
		t.Fatal(err)
	}
	kind, body, came, err := (&medium{}).ReadFirstFrame(conn)
	if err != nil || kind != link.KindWelcome || effects.Code(body[0]) != effects.OK || len(came) != filesPerFrame {
		t.Fatalf("kind %d, %x, %d files, %v", kind, body, len(came), err)
	}
	for _, file := range came {
		_ = file.Close()
	}
	ask := binary.LittleEndian.AppendUint32(nil, 1+8+4+8+4+28)
	ask = binary.LittleEndian.AppendUint64(append(ask, byte(link.KindRead)), 1)
	ask = append(ask, make([]byte, 4+8)...)
	ask = append(binary.LittleEndian.AppendUint32(ask, 1), make([]byte, 28)...)
	if _, err := conn.Write(ask); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Fatalf("a read was answered: %d, %v", n, err)
	}
	planetest.AwaitEvent(t, b, func(e *effects.LinkLost) bool { return e.Peer == a.Inc })
}

// The files beside a welcome are checked before they are mapped, and refused without harm.
func TestWelcomesAreChecked(t *testing.T) {
	lender := planetest.OpenNode(t, Open, 7, 2, hostilePage)
	memory, table, reads := lender.Pool.PagesFile(), lender.Pool.GenerationsFile(), lender.Pool.ReadPermitsFile()
	larger := planetest.OpenNode(t, Open, 8, 3, hostilePage).Pool
	plain, err := os.CreateTemp(t.TempDir(), "plain")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if err := plain.Truncate(16 << 20); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		pages uint32
		files []*os.File
		want  effects.Code
	}{
		{"as it should be", 2, []*os.File{memory, table, reads}, effects.OK},
		{"no memory", 2, nil, effects.Unreachable},
		{"memory alone", 2, []*os.File{memory}, effects.Unreachable},
		{"without generations, as once", 2, []*os.File{memory, reads}, effects.Unreachable},
		{"a file too many, which the kernel closes", 2, []*os.File{memory, table, reads, plain}, effects.OK},
		{"the wrong way round", 2, []*os.File{reads, table, memory}, effects.Unreachable},
		{"permits for generations", 2, []*os.File{memory, reads, table}, effects.Unreachable},
		{"memory that can be cut off", 2, []*os.File{plain, table, reads}, effects.Unreachable},
		{"generations that can be cut off", 2, []*os.File{memory, plain, reads}, effects.Unreachable},
		{"permits that can be cut off", 2, []*os.File{memory, table, plain}, effects.Unreachable},
		{"more pages than memory", 3, []*os.File{memory, larger.GenerationsFile(), larger.ReadPermitsFile()}, effects.Unreachable},
		{"generations of more pages", 2, []*os.File{memory, larger.GenerationsFile(), reads}, effects.Unreachable},
		{"generations of fewer pages", 3, []*os.File{larger.PagesFile(), table, larger.ReadPermitsFile()}, effects.Unreachable},
		{"permits of more pages", 2, []*os.File{memory, table, larger.ReadPermitsFile()}, effects.Unreachable},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := planetest.OpenNode(t, Open, 1, 2, hostilePage)
			owner := effects.Incarnation{9}
			blob, served := serveWelcome(t, owner, c.pages, c.files)
			if e := a.TryImport(t, owner, blob); e.Code != c.want {
				t.Errorf("imported as %s, want %s", e.Code, c.want)
			}
			if err := a.Plane.Close(context.Background()); err != nil { // It ends the link, if there is one.
				t.Error(err)
			}
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
	}
}

// A serveWelcome serves one connection like a dishonest owner.
func serveWelcome(t *testing.T, owner effects.Incarnation, pages uint32, beside []*os.File) (blob []byte,
	served <-chan error) {
	name := abstractPrefix + rand.Text()
	listener, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	boot, err := bootID()
	if err != nil {
		t.Fatal(err)
	}
	address := boot + " " + name
	blob = binary.LittleEndian.AppendUint16([]byte{2}, uint16(len(address)))
	done := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			done <- err
			return
		}
		defer conn.Close()
		_, body, came, err := (&medium{}).ReadFirstFrame(conn)
		for _, file := range came {
			_ = file.Close()
		}
		if err != nil {
			done <- err
			return
		}
		hello, err := link.ParseHello(body)
		if err != nil {
			done <- err
			return
		}
		answer := link.Welcome{From: owner, Buffer: effects.Buffer{Pages: pages, PageBytes: hostilePage}}
		answer.Proof = answer.ComputeProof(&hello, planetest.Key.Token(Name, hello.From, owner), nil)
		welcome := link.AppendWelcome(nil, answer)
		var fds []int
		for _, file := range beside {
			fds = append(fds, int(file.Fd()))
		}
		if _, _, err := conn.(*net.UnixConn).WriteMsgUnix(welcome, unix.UnixRights(fds...), nil); err != nil {
			done <- err
			return
		}
		_, err = conn.Read(make([]byte, 1))
		if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
			err = nil // The reader has ended the link.
		}
		done <- err
	}()
	return append(blob, address...), done
}
