//go:build cgo && linux

package nixlproc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/kvferry/kvferry/runtime/libnixl"
)

// A Region is memory that agents of a Host may register.
type Region struct {
	Address uint64 // in this process
	Bytes   uint64
	// File is the memory as a file, such as a memfd, that begins at Address. Agents in another process need the file.
	File *os.File
	// Repeat is not 0 if the region consists of the first Repeat bytes of the file, mapped again and again.
	Repeat uint64
}

// A HostConfig is what an Opener needs.
type HostConfig struct {
	Memory []Region     // all memory that agents will register
	Log    *slog.Logger // slog.Default if nil
}

// An Opener opens a Host: the result of InProcess, or the method Open of Options.
type Opener func(context.Context, HostConfig) (Host, error)

// A Host makes agents. Its methods may be called from any goroutine.
type Host interface {
	// NewAgent makes an agent. The connection, if not nil, stays open until the agent is closed even if this process
	// dies before: see the package comment.
	NewAgent(o libnixl.AgentOptions, held net.Conn) (Agent, error)
	// PeerAddress returns the address at which peers find a byte of the host's memory.
	PeerAddress(address uint64) uint64
	// Info describes the loaded library.
	Info() libnixl.Info
	// Close ends the host. All agents should be closed before.
	Close() error
}

// An Agent is like libnixl.Agent, and also belongs to one goroutine at a time.
type Agent interface {
	RegisterMemory(ranges ...libnixl.Range) (Memory, error)
	Metadata() ([]byte, error)
	LoadMetadata(metadata []byte) (peer string, err error)
	ConnectPeer(peer string) error
	SendNotice(peer string, notice []byte) error
	PollNotices() ([]libnixl.Notice, error)
	NewTransfer(o libnixl.TransferOptions) (Transfer, error)
	// Ended returns a channel that is closed when the process of the agent has exited; nil if it is this process.
	Ended() <-chan struct{}
	Close() error
}

// A Memory is like libnixl.Memory.
type Memory interface{ Close() error }

// A Transfer is like libnixl.Transfer, except that it is posted once.
type Transfer interface {
	// Post starts the transfer, unless more time than within has passed when the library would be called; then the
	// error is ErrLate and nothing was started.
	Post(within time.Duration) (done bool, err error)
	Check() (done bool, err error)
	Close() error
}

var (
	// ErrLate says that a transfer was not started, because its time was over.
	ErrLate = errors.New("libnixl: the transfer is late")
	// ErrNoLibrary is wrapped by the error of Options.Open if the library cannot be loaded.
	ErrNoLibrary = errors.New("libnixl cannot be loaded")
	// ErrEnded says that the process of an agent has exited.
	ErrEnded = errors.New("libnixl: the process of the agent has ended")
)

// InProcess returns an Opener of hosts whose agents live in this process. Peers can then read and write all memory of
// this process, and can end it.
func InProcess(library *libnixl.Library) Opener {
	return func(context.Context, HostConfig) (Host, error) {
		if library == nil {
			return nil, fmt.Errorf("%w: there is no library", libnixl.ErrInvalid)
		}
		return inProcessHost{library}, nil
	}
}

type inProcessHost struct{ library *libnixl.Library }

func (h inProcessHost) NewAgent(o libnixl.AgentOptions, _ net.Conn) (Agent, error) {
	a, err := h.library.NewAgent(o)
	if err != nil {
		return nil, err
	}
	return inProcessAgent{a}, nil
}

func (inProcessHost) PeerAddress(address uint64) uint64 { return address }
func (h inProcessHost) Info() libnixl.Info              { return h.library.Info() }
func (inProcessHost) Close() error                      { return nil }

type inProcessAgent struct{ *libnixl.Agent }

func (a inProcessAgent) RegisterMemory(ranges ...libnixl.Range) (Memory, error) {
	m, err := a.Agent.RegisterMemory(libnixl.Host, ranges...)
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (a inProcessAgent) NewTransfer(o libnixl.TransferOptions) (Transfer, error) {
	t, err := a.Agent.NewTransfer(o)
	if err != nil {
		return nil, err
	}
	return inProcessTransfer{t}, nil
}

func (inProcessAgent) Ended() <-chan struct{} { return nil }

type inProcessTransfer struct{ *libnixl.Transfer }

func (t inProcessTransfer) Post(within time.Duration) (bool, error) {
	if within < 0 {
		return false, ErrLate
	}
	return t.Transfer.Post()
}
