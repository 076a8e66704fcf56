//go:build cgo && linux

package nixlproc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/runtime/libnixl"
)

const (
	// childVariable marks the process that runs Main.
	childVariable = "KVFERRY_LIBNIXL_PROCESS"
	// controlFile is the number of the child's control socket.
	controlFile = 3
	// filesMax is how many files may come with a message, which is the kernel's limit.
	filesMax = 253
)

// hooked says that the program has asked IsChild, so that it can be its own child.
var hooked bool

// IsChild reports whether this process was started by a Host in order to run Main. A program that opens hosts asks
// this first of all in its main function.
func IsChild() bool {
	hooked = true
	return os.Getenv(childVariable) != ""
}

// Main serves agents to the node that has started this process, and ends the process when the node is gone. Main never
// returns.
func Main() {
	err := serveNode()
	if err != nil {
		fmt.Fprintf(os.Stderr, "libnixl's process: %v\n", err)
	}
	exitProcess(err)
}

// exitProcess ends the process without C's exit, in which libraries of the wheel fault.
func exitProcess(err error) {
	code := uintptr(0)
	if err != nil {
		code = 1
	}
	_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, code, 0, 0)
}

// serveNode runs until the node closes the control socket.
func serveNode() error {
	if err := dropRights(); err != nil {
		return err
	}
	control, err := openSocket(controlFile)
	if err != nil {
		return fmt.Errorf("this process is to be started by a node: %w", err)
	}
	var setup setupMessage
	files, err := receiveControl(control, &setup)
	if err != nil {
		return fmt.Errorf("read the setup: %w", err)
	}
	library, err := prepareChild(&setup, files)
	answer := setupAnswer{}
	if err != nil {
		missed := (*libnixl.LoadError)(nil)
		answer.Error, answer.NoLibrary = err.Error(), errors.As(err, &missed)
	} else {
		answer.Info = library.Info()
	}
	if err := errors.Join(sendControl(control, &answer), err); err != nil {
		return err
	}
	for {
		var m controlMessage
		files, err := receiveControl(control, &m)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the control socket: %w", err)
		case m.Name == "":
			if err := sendControl(control, &controlMessage{}); err != nil {
				return err
			}
			continue
		case len(files) == 0:
			return fmt.Errorf("%w: an agent without a socket", errMalformed)
		}
		// The socket stays blocking: a thread that waits in the kernel wakes sooner than a goroutine that Go's poller wakes.
		s := &agentServer{socket: os.NewFile(uintptr(files[0]), "agent"), held: files[1:], memory: map[uint64]*libnixl.Memory{},
			transfers: map[uint64]*libnixl.Transfer{}}
		go s.serveCalls(library, libnixl.AgentOptions{Name: m.Name, Params: m.Params})
	}
}

// dropRights gives up what the process does not need.
func dropRights() error {
	// A terminal and a service manager also send these signals to this process, but the node decides when it ends.
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	if err := closeInherited(); err != nil {
		return fmt.Errorf("close inherited files: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("turn off core files: %w", err)
	}
	return os.Chdir("/")
}

// closeInherited closes the files that the node has inherited and passed on, but not those of Go's own poller.
func closeInherited() error {
	const folder = "/proc/self/fd/"
	list, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, entry := range list {
		file, err := strconv.Atoi(entry.Name())
		if err != nil || file <= controlFile {
			continue
		}
		// The folder itself is in the list, and is closed already.
		if what, err := os.Readlink(folder + entry.Name()); err == nil && !strings.HasPrefix(what, "anon_inode:") {
			_ = unix.Close(file)
		}
	}
	return nil
}

// prepareChild maps the memory and loads the library.
func prepareChild(setup *setupMessage, files []int) (*libnixl.Library, error) {
	if len(files) != len(setup.Regions) {
		return nil, fmt.Errorf("%w: %d files for %d regions", errMalformed, len(files), len(setup.Regions))
	}
	for i, r := range setup.Regions {
		if err := mapRegion(&r, files[i]); err != nil {
			return nil, err
		}
		if err := unix.Close(files[i]); err != nil {
			return nil, err
		}
	}
	return libnixl.Open(libnixl.Options{Library: setup.Library})
}

// mapRegion maps a file at the address of a region.
func mapRegion(r *setupRegion, file int) error {
	if r.Repeat == 0 {
		return mapPiece(r.Address, r.Bytes, file, unix.MAP_FIXED_NOREPLACE)
	}
	if err := mapPiece(r.Address, r.Repeat, file, unix.MAP_FIXED_NOREPLACE); err != nil {
		return err
	}
	for at := r.Repeat; at < r.Bytes; at += r.Repeat {
		if err := mapPiece(r.Address+at, min(r.Repeat, r.Bytes-at), file, unix.MAP_FIXED_NOREPLACE); err != nil {
			return err
		}
	}
	return nil
}

func mapPiece(address, bytes uint64, file, flags int) error {
	got, _, e := unix.Syscall6(unix.SYS_MMAP, uintptr(address), uintptr(bytes), unix.PROT_READ|unix.PROT_WRITE,
		uintptr(unix.MAP_SHARED|flags), uintptr(file), 0)
	if e == 0 && got != uintptr(address) {
		e = unix.EEXIST
	}
	if e != 0 {
		return fmt.Errorf("map %d bytes of the node's memory at %#x: %w", bytes, address, e)
	}
	// Core files hold no pages; failing to say so is no reason to end, because core files are off.
	_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(address), uintptr(bytes), unix.MADV_DONTDUMP)
	return nil
}

// openSocket makes a connection of a file, which it takes over.
func openSocket(file int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(file), "socket")
	if f == nil {
		return nil, fmt.Errorf("file %d: %w", file, os.ErrInvalid)
	}
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("use file %d as a socket: %w", file, err)
	}
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%w: file %d is a %T", errMalformed, file, conn), conn.Close())
	}
	return socket, nil
}

// sendControl sends a message with files, which stay the caller's.
func sendControl(conn *net.UnixConn, message any, files ...int) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(text) > controlMax || len(files) > filesMax {
		return fmt.Errorf("%w: a message of %d bytes with %d files; at most %d and %d are possible", libnixl.ErrInvalid, len(text),
			len(files), controlMax, filesMax)
	}
	var rights []byte
	if len(files) > 0 {
		rights = unix.UnixRights(files...)
	}
	_, _, err = conn.WriteMsgUnix(text, rights, nil)
	return err
}

// receiveControl receives a message and its files, which are the caller's. The error is io.EOF if the other end is
// closed.
func receiveControl(conn *net.UnixConn, into any) (files []int, err error) {
	text, rights := make([]byte, controlMax), make([]byte, unix.CmsgSpace(4*filesMax))
	n, rightsBytes, flags, _, err := conn.ReadMsgUnix(text, rights)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:rightsBytes])
	if err != nil {
		return nil, err
	}
	for i := range messages {
		got, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return nil, err
		}
		files = append(files, got...)
	}
	switch {
	case n == 0:
		return nil, io.EOF
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		err = fmt.Errorf("%w: it is cut off", errMalformed)
	default:
		err = json.Unmarshal(text[:n], into)
	}
	if err != nil {
		for _, f := range files {
			_ = unix.Close(f)
		}
		return nil, err
	}
	return files, nil
}

// An agentServer serves the calls of one agent.
type agentServer struct {
	socket    *os.File
	held      []int // connections that stay open as long as the agent exists
	agent     *libnixl.Agent
	last      uint64
	memory    map[uint64]*libnixl.Memory
	transfers map[uint64]*libnixl.Transfer
	notices   []libnixl.Notice // received, and not fetched yet
}

// serveCalls runs until the agent is closed. If the node drops an agent without closing it, the process ends,
// because the agent would otherwise remain.
func (s *agentServer) serveCalls(library *libnixl.Library, o libnixl.AgentOptions) {
	agent, err := library.NewAgent(o)
	s.agent = agent
	answer, buf := encodeOutcome(nil, err), []byte(nil)
	for {
		if err := writeFrame(s.socket, answer); err != nil {
			s.exitWithoutNode(err)
		}
		if s.agent == nil {
			_ = s.releaseHeld()
			_ = s.socket.Close()
			return
		}
		first, body, grown, err := readFrame(s.socket, buf)
		if err != nil {
			s.exitWithoutNode(err)
		}
		answer = s.answerCall(operation(first), &decoder{rest: body})
		if buf = grown; cap(buf) > keptBuffer {
			buf = nil
		}
	}
}

func (s *agentServer) exitWithoutNode(err error) {
	if !errors.Is(err, io.EOF) {
		slog.Error("libnixl's process ends: the node's calls cannot be read", "err", err)
	}
	exitProcess(err)
}

// encodeOutcome returns the answer to a call.
func encodeOutcome(result []byte, err error) []byte {
	if err == nil {
		return append(beginFrame(outcomeOK), result...)
	}
	first := outcomeFailed
	switch {
	case errors.Is(err, ErrLate):
		first = outcomeLate
	case errors.Is(err, libnixl.ErrInvalid):
		first = outcomeInvalid
	}
	text := err.Error()
	return append(beginFrame(first), text[:min(len(text), errorMax)]...)
}

// errorMax bounds the text of an error.
const errorMax = 4096

func (s *agentServer) answerCall(op operation, d *decoder) []byte {
	result, err := s.carryOut(op, d)
	return encodeOutcome(result, err)
}

// carryOut carries out a call.
func (s *agentServer) carryOut(op operation, d *decoder) (result []byte, err error) {
	switch op {
	case opRegister:
		ranges := d.readRanges()
		if err := d.checkEnd(); err != nil {
			return nil, err
		}
		m, err := s.agent.RegisterMemory(libnixl.Host, ranges...)
		if err != nil {
			return nil, err
		}
		s.last++
		s.memory[s.last] = m
		return appendNumber(nil, s.last), nil
	case opDeregister:
		return nil, closeNumbered(s.memory, d)
	case opMetadata:
		return s.agent.Metadata()
	case opLoad:
		name, err := s.agent.LoadMetadata(d.rest)
		return []byte(name), err
	case opConnect:
		return nil, s.agent.ConnectPeer(string(d.rest))
	case opNotify:
		peer, notice := d.readName(), d.readBytes(frameMax)
		if err := d.checkEnd(); err != nil {
			return nil, err
		}
		return nil, s.agent.SendNotice(peer, notice)
	case opNotices:
		return s.pollNotices()
	case opPost:
		p := d.readPost()
		if err := d.checkEnd(); err != nil {
			return nil, err
		}
		return s.postTransfer(&p)
	case opCheck:
		return s.checkTransfer(d)
	case opRelease:
		return nil, closeNumbered(s.transfers, d)
	case opClose:
		return nil, s.closeAgent()
	}
	return nil, fmt.Errorf("%w: operation %d", errMalformed, op)
}

// closeNumbered closes the object with a number.
func closeNumbered[T interface{ Close() error }](all map[uint64]T, d *decoder) error {
	number := d.readNumber()
	if err := d.checkEnd(); err != nil {
		return err
	}
	it, ok := all[number]
	if !ok {
		return fmt.Errorf("%w: number %d", libnixl.ErrClosed, number)
	}
	if err := it.Close(); err != nil {
		return err
	}
	delete(all, number)
	return nil
}

// pollNotices returns as many notices as an answer holds. A notice that no answer holds is dropped.
func (s *agentServer) pollNotices() ([]byte, error) {
	list, err := s.agent.PollNotices()
	if err != nil {
		return nil, err
	}
	s.notices = append(s.notices, slices.DeleteFunc(list, func(n libnixl.Notice) bool {
		return len(n.Bytes) > noticesMax || n.Peer == "" || len(n.Peer) > nameMax
	})...)
	count, bytes := 0, 0
	for count < len(s.notices) && bytes < noticesMax {
		bytes += len(s.notices[count].Peer) + len(s.notices[count].Bytes) + 8
		count++
	}
	if bytes > noticesMax && count > 1 {
		count--
	}
	answer := appendNotices(nil, s.notices[:count])
	if s.notices = s.notices[count:]; len(s.notices) == 0 {
		s.notices = nil
	}
	return answer, nil
}

// bootClock reads the clock that node and child have in common, in nanoseconds.
func bootClock() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("BUG: CLOCK_BOOTTIME cannot be read: " + err.Error())
	}
	return ts.Nano()
}

// postTransfer makes and starts a transfer. The clock is read right before the transfer is started (M4).
func (s *agentServer) postTransfer(p *postRequest) ([]byte, error) {
	t, err := s.agent.NewTransfer(p.TransferOptions)
	if err != nil {
		return nil, err
	}
	if passed := bootClock() - p.sent; passed < 0 || passed > p.within {
		if err := t.Close(); err != nil {
			return nil, err
		}
		return nil, ErrLate
	}
	done, err := t.Post()
	if err != nil {
		s.last++
		s.transfers[s.last] = t // The library may still work on it.
		return nil, err
	}
	if done {
		return appendNumber(nil, 0), t.Close()
	}
	s.last++
	s.transfers[s.last] = t
	return appendNumber(nil, s.last), nil
}

// checksPerCall is how often a transfer is looked at for one call, because a call takes as long as many checks.
const checksPerCall = 16

func (s *agentServer) checkTransfer(d *decoder) ([]byte, error) {
	number := d.readNumber()
	if err := d.checkEnd(); err != nil {
		return nil, err
	}
	t, ok := s.transfers[number]
	if !ok {
		return nil, fmt.Errorf("%w: transfer %d", libnixl.ErrClosed, number)
	}
	for range checksPerCall {
		done, err := t.Check()
		if err != nil {
			return nil, err
		}
		if done {
			delete(s.transfers, number)
			return appendNumber(nil, 1), t.Close()
		}
	}
	return appendNumber(nil, 0), nil
}

// closeAgent destroys the agent with all that it has, and then lets the connections go.
func (s *agentServer) closeAgent() error {
	var err error
	for number, t := range s.transfers {
		err = errors.Join(err, t.Close())
		delete(s.transfers, number)
	}
	for number, m := range s.memory {
		err = errors.Join(err, m.Close())
		delete(s.memory, number)
	}
	if err != nil {
		return err // The library would not destroy the agent.
	}
	if err := s.agent.Close(); err != nil {
		return err
	}
	s.agent = nil
	// The node may close its connection as soon as it has the answer, so this end is closed before.
	return s.releaseHeld()
}

// releaseHeld closes the connections that were held.
func (s *agentServer) releaseHeld() (err error) {
	for _, f := range s.held {
		err = errors.Join(err, unix.Close(f))
	}
	s.held = nil
	return err
}
