package epochs

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime/plane/framing"
)

// connect returns a channel and the other end of its connection.
func connect(t *testing.T) (*Channel, *net.TCPConn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	far, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	near, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return NewChannel(near, time.Minute, 1<<10), far.(*net.TCPConn)
}

func frameOf(kind uint8) []byte { return framing.AppendHeader(nil, kind, 0) }

// A write that takes the error of a reset makes the socket report the end of the stream to the reader. The channel still
// says that the connection was reset, which is no proof between hosts (M4).
func TestResetThatAWriteTook(t *testing.T) {
	c, far := connect(t)
	failed := make(chan error, 1)
	go c.WriteFrames(func(err error) { failed <- err })
	// A close with unread bytes is a reset.
	if !c.Send(frameOf(1)) {
		t.Fatal("the first frame is refused")
	}
	if _, err := io.ReadFull(far, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(far.SetLinger(0), far.Close()); err != nil {
		t.Fatal(err)
	}
	var err error
	for deadline := time.Now().Add(time.Minute); err == nil && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		c.Send(frameOf(2))
		select {
		case err = <-failed:
		default:
		}
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("the write ended as %v", err)
	}
	if err := c.ReadFrames(func(uint8, []byte) error { return nil }); !errors.Is(err, io.EOF) {
		t.Fatalf("the frames ended as %v: the socket has kept its error, and the test tests nothing", err)
	}
	end := c.AwaitEnd()
	if !errors.Is(end, syscall.ECONNRESET) || ProvesEnd(end, false) || !ProvesEnd(end, true) {
		t.Errorf("the connection ended as %v", end)
	}
	ended := make(chan struct{})
	close(ended)
	c.FlushAndClose(ended)
}

// Interrupt ends the frames and not the connection, whether the reader waits for a frame or handles one.
func TestInterruptedChannelStaysOpen(t *testing.T) {
	for _, handling := range []bool{false, true} {
		c, far := connect(t)
		refused := errors.New("refused")
		started, release := make(chan struct{}), make(chan struct{})
		var handled []uint8
		var framesEnd, connEnd error
		var reader sync.WaitGroup
		reader.Go(func() {
			framesEnd = c.ReadFrames(func(kind uint8, _ []byte) error {
				handled = append(handled, kind)
				close(started)
				<-release
				return nil
			})
			connEnd = c.AwaitEnd()
		})
		if handling {
			_, _ = far.Write(append(frameOf(1), frameOf(2)...))
			<-started
		} else {
			time.Sleep(time.Millisecond) // The reader waits, most likely.
		}
		c.Interrupt(refused)
		close(release)
		_, _ = far.Write(frameOf(3))
		go c.WriteFrames(func(err error) { t.Error(err) })
		if err := c.FlushAndCloseWrite(); err != nil {
			t.Error(err)
		}
		if rest, err := io.ReadAll(far); err != nil || len(rest) > 0 {
			t.Errorf("the peer reads %x, %v", rest, err)
		}
		_ = far.CloseWrite()
		reader.Wait()
		if !errors.Is(framesEnd, refused) || len(handled) > 1 {
			t.Errorf("the frames ended as %v after %v", framesEnd, handled)
		}
		if !ProvesEnd(connEnd, false) {
			t.Errorf("the connection ended as %v", connEnd)
		}
		ended := make(chan struct{})
		close(ended)
		c.FlushAndClose(ended)
	}
}
