//go:build cgo && linux

package nixlproc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/kvferry/kvferry/runtime/libnixl"
)

// # Messages
//
// The control socket is a socket of packets, with one JSON message each and the files that belong to it. Each agent
// has a socket of its own, a stream of frames: the length of what follows in four bytes, the operation or the outcome
// in one byte, and the operands. Calls of an agent do not overlap, so that each request is followed by its answer.
// Numbers are in the order of the machine, because both ends are on one.
//
// The node believes nothing of an answer: peers may control the child. An answer is bounded by frameMax, names and
// metadata by the bounds of libnixl, and what remains is no text that the node acts upon.

// A setupMessage is the first message of the control socket, with a file for each region.
type setupMessage struct {
	Library string
	Regions []setupRegion
}

// A setupRegion is memory to be mapped at an address.
type setupRegion struct{ Address, Bytes, Repeat uint64 }

// A setupAnswer answers it.
type setupAnswer struct {
	Error     string
	NoLibrary bool // the error is that the library could not be loaded
	Info      libnixl.Info
}

// A controlMessage asks for an agent, with the agent's socket and possibly a connection to hold, or, without a name,
// whether the child is alive.
type controlMessage struct {
	Name   string `json:",omitempty"`
	Params map[string]string
}

// controlMax bounds a message of the control socket.
const controlMax = 64 << 10

// An operation is what a frame asks for.
type operation uint8

const (
	opRegister   operation = iota + 1 // ranges -> the memory's number
	opDeregister                      // number
	opMetadata                        // -> bytes
	opLoad                            // bytes -> name
	opConnect                         // name
	opNotify                          // name, bytes
	opNotices                         // -> names and bytes
	opPost                            // a transfer -> its number, or 0 if it is done
	opCheck                           // number -> 1 if it is done, and the number does not exist any more
	opRelease                         // number
	opClose                           // the agent; no other operation follows
)

// The outcomes of a call, the first byte of an answer. After any but outcomeOK the text of the error follows.
const (
	outcomeOK uint8 = iota
	outcomeFailed
	outcomeInvalid
	outcomeLate
)

const (
	// frameMax bounds a frame: the pairs of the largest batch take 1.5 MiB, metadata 1 MiB.
	frameMax = 8 << 20
	// noticesMax bounds the notices of an answer; the others wait for the next call.
	noticesMax = frameMax / 2
	rangesMax  = 1 << 10
	pairsMax   = 1 << 18
)

// errMalformed says that a message is not as this package makes it.
var errMalformed = errors.New("malformed message between node and libnixl's process")

// beginFrame returns an empty frame.
func beginFrame(first uint8) []byte { return []byte{0, 0, 0, 0, first} }

// writeFrame writes a frame.
func writeFrame(w io.Writer, frame []byte) error {
	if len(frame)-4 > frameMax {
		return fmt.Errorf("%w: a message of %d bytes; at most %d are possible: use smaller batches", libnixl.ErrInvalid,
			len(frame)-4, frameMax)
	}
	binary.NativeEndian.PutUint32(frame, uint32(len(frame)-4))
	_, err := w.Write(frame)
	return err
}

// readFrame reads a frame into buf, which it returns grown.
func readFrame(r io.Reader, buf []byte) (first uint8, body, grown []byte, err error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, buf, err
	}
	n := binary.NativeEndian.Uint32(head[:])
	if n == 0 || n > frameMax {
		return 0, nil, buf, fmt.Errorf("%w: %d bytes", errMalformed, n)
	}
	if uint32(cap(buf)) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := io.ReadFull(r, buf); err != nil {
		return 0, nil, buf, err
	}
	return buf[0], buf[1:], buf, nil
}

// keptBuffer is the capacity that a buffer keeps between frames.
const keptBuffer = 64 << 10

func appendNumber(b []byte, n uint64) []byte { return binary.NativeEndian.AppendUint64(b, n) }

func appendBytes[T string | []byte](b []byte, v T) []byte {
	return append(binary.NativeEndian.AppendUint32(b, uint32(len(v))), v...)
}

// A decoder reads the operands of a frame. After an error every result is zero.
type decoder struct {
	rest   []byte
	failed bool
}

func (d *decoder) takeBytes(n uint64) []byte {
	if d.failed || n > uint64(len(d.rest)) {
		d.failed = true
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) readNumber() uint64 {
	if b := d.takeBytes(8); b != nil {
		return binary.NativeEndian.Uint64(b)
	}
	return 0
}

// readBytes returns a part of the frame.
func (d *decoder) readBytes(limit int) []byte {
	b := d.takeBytes(4)
	if b == nil {
		return nil
	}
	n := binary.NativeEndian.Uint32(b)
	if uint64(n) > uint64(limit) {
		d.failed = true
		return nil
	}
	return d.takeBytes(uint64(n))
}

// nameMax is the longest name of an agent that libnixl has.
const nameMax = 255

// readName reads the name of an agent.
func (d *decoder) readName() string {
	name := string(d.readBytes(nameMax))
	if name == "" || strings.IndexByte(name, 0) >= 0 {
		d.failed = true
	}
	return name
}

// readCount reads how many elements of so many bytes follow.
func (d *decoder) readCount(limit, elementBytes uint64) int {
	n := d.readNumber()
	if n > limit || n > uint64(len(d.rest))/elementBytes {
		d.failed = true
		return 0
	}
	return int(n)
}

// checkEnd returns an error unless all of the frame was read, without an error.
func (d *decoder) checkEnd() error {
	if d.failed || len(d.rest) > 0 {
		return errMalformed
	}
	return nil
}

func appendRanges(b []byte, ranges []libnixl.Range) []byte {
	b = appendNumber(b, uint64(len(ranges)))
	for _, r := range ranges {
		b = appendNumber(appendNumber(b, r.Address), r.Bytes)
	}
	return b
}

func (d *decoder) readRanges() []libnixl.Range {
	list := make([]libnixl.Range, d.readCount(rangesMax, 16))
	for i := range list {
		list[i] = libnixl.Range{Address: d.readNumber(), Bytes: d.readNumber()}
	}
	return list
}

// A postRequest is the operands of opPost.
type postRequest struct {
	libnixl.TransferOptions
	sent   int64 // the boot clock when the request was made
	within int64 // how long after that the transfer may be started
}

func (p *postRequest) appendTo(b []byte) []byte {
	b = appendNumber(appendNumber(b, uint64(p.sent)), uint64(p.within))
	b = append(b, byte(p.Operation), byte(p.Local.Kind), byte(p.Remote.Kind))
	b = appendNumber(appendNumber(b, p.Local.Device), p.Remote.Device)
	b = appendBytes(appendBytes(b, p.Peer), p.Notice)
	b = appendNumber(b, uint64(len(p.Pairs)))
	for _, pair := range p.Pairs {
		b = appendNumber(appendNumber(appendNumber(b, pair.Local), pair.Remote), pair.Bytes)
	}
	return b
}

func (d *decoder) readPost() (p postRequest) {
	p.sent, p.within = int64(d.readNumber()), int64(d.readNumber())
	if kinds := d.takeBytes(3); kinds != nil {
		p.Operation, p.Local.Kind, p.Remote.Kind = libnixl.Operation(kinds[0]), libnixl.Kind(kinds[1]), libnixl.Kind(kinds[2])
	}
	p.Local.Device, p.Remote.Device = d.readNumber(), d.readNumber()
	p.Peer, p.Notice = d.readName(), d.readBytes(frameMax)
	p.Pairs = make([]libnixl.Pair, d.readCount(pairsMax, 24))
	for i := range p.Pairs {
		p.Pairs[i] = libnixl.Pair{Local: d.readNumber(), Remote: d.readNumber(), Bytes: d.readNumber()}
	}
	return p
}

func appendNotices(b []byte, list []libnixl.Notice) []byte {
	b = appendNumber(b, uint64(len(list)))
	for _, n := range list {
		b = appendBytes(appendBytes(b, n.Peer), n.Bytes)
	}
	return b
}

// readNotices reads notices, which do not share memory with the frame.
func (d *decoder) readNotices() []libnixl.Notice {
	n := d.readCount(frameMax, 8)
	if n == 0 {
		return nil
	}
	list := make([]libnixl.Notice, 0, min(n, 1024))
	for range n {
		list = append(list, libnixl.Notice{Peer: d.readName(), Bytes: append([]byte(nil), d.readBytes(frameMax)...)})
		if d.failed {
			return nil
		}
	}
	return list
}
