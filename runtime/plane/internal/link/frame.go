package link

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/runtime/plane/framing"
)

// Magic begins every hello and every hello of a stream. Its last byte is the version.
const Magic uint32 = 0x4b564605

// versionMask selects the version in Magic.
const versionMask uint32 = 0xff

// A Kind identifies what a frame contains.
type Kind uint8

// Kinds of frames. A connection begins with KindHello or, where the medium has streams, with KindJoin.
const (
	KindHello Kind = iota + 1
	KindWelcome
	KindPush
	KindCancel
	KindDone
	KindJoin
	KindRead
	KindJoined
	KindGather
)

const (
	headBytes    = framing.HeaderBytes
	helloBytes   = 4 + 16*5 + 4 + 8
	welcomeBytes = 1 + 16 + 16 + 4 + 8 + 16
	requestBytes = 8 + 4 + 8 + 4
	pairBytes    = 4 + 8 + 4 + 8 + 4
	gatherBytes  = 4 + 4
	layerBytes   = 4 + 8
	cancelBytes  = 8
	doneBytes    = 8 + 1
	// SmallFrame is the size of the longest frame other than a push, a gather and a read.
	SmallFrame = headBytes + helloBytes
)

// ErrMalformed is wrapped by every error that describes how a peer's bytes violate the protocol.
var ErrMalformed = framing.ErrMalformed

// Hello is the first message of an initiator.
type Hello struct {
	From, To effects.Incarnation // as the two peers know each other
	Proof    [16]byte            // proves that the initiator has the token which the target's machine made for From
	Session  [16]byte            // random; streams of the same link name it
	Buffer   effects.Buffer      // the initiator's pool
}

// ComputeProof returns the Proof that a hello of this kind needs, given the token. Binding is secure.Binding of the
// connection; nil without TLS, so that the proof is the one that earlier releases compute.
func (h *Hello) ComputeProof(kind Kind, token identity.Token, binding []byte) [16]byte {
	return token.Prove("hello", []byte{byte(kind)}, h.From[:], h.To[:], h.Session[:], append(appendBuffer(nil, h.Buffer), binding...))
}

// Welcome answers a Hello. If Code is not OK, the other fields must not be trusted.
type Welcome struct {
	Code   effects.Code
	From   effects.Incarnation
	Buffer effects.Buffer // the target's pool
	Proof  [16]byte       // proves that the target has the token and has received this hello
}

// ComputeProof returns the Proof that a welcome needs in answer to hello h.
func (w *Welcome) ComputeProof(h *Hello, token identity.Token, binding []byte) [16]byte {
	return token.Prove("welcome", h.Session[:], []byte{byte(w.Code)}, w.From[:], append(appendBuffer(nil, w.Buffer), binding...))
}

// TransferRequest is the body of a push or a read: pages to store, or to send, under a grant. Pairs[i].Local is the
// initiator's page; Pairs[i].Remote.Index and Generation name the target's page. Both pages have Local.Length bytes.
// In a push that gathers (KindGather), Gather has the initiator's pages instead.
type TransferRequest struct {
	Transfer uint64
	Slot     uint32 // of the transfer's permit; zero in reads, and on planes without permits
	Grant    effects.GrantID
	Pairs    []effects.Pair
	Gather   effects.Gather
}

// maxFrame returns the length of the longest frame that a peer may send.
func maxFrame(pairs int) int {
	return max(SmallFrame, headBytes+requestBytes+pairs*pairBytes+gatherBytes+pairs*layerBytes)
}

func appendHeader(b []byte, kind Kind, body int) []byte {
	return framing.AppendHeader(b, uint8(kind), body)
}

func appendBuffer(b []byte, buf effects.Buffer) []byte {
	b = append(b, buf.ID[:]...)
	b = binary.LittleEndian.AppendUint32(b, buf.Pages)
	return binary.LittleEndian.AppendUint64(b, buf.PageBytes)
}

// AppendHello appends a hello, or with KindJoin the hello of a stream.
func AppendHello(b []byte, kind Kind, h Hello) []byte {
	b = appendHeader(b, kind, helloBytes)
	b = binary.LittleEndian.AppendUint32(b, Magic)
	b = append(b, h.From[:]...)
	b = append(b, h.To[:]...)
	b = append(b, h.Proof[:]...)
	b = append(b, h.Session[:]...)
	return appendBuffer(b, h.Buffer)
}

// AppendJoined appends the answer to a Join, after which the stream belongs to the link.
func AppendJoined(b []byte) []byte { return appendHeader(b, KindJoined, 0) }

// AppendWelcome appends a welcome.
func AppendWelcome(b []byte, w Welcome) []byte {
	b = appendHeader(b, KindWelcome, welcomeBytes)
	b = append(b, byte(w.Code))
	b = append(b, w.From[:]...)
	return append(appendBuffer(b, w.Buffer), w.Proof[:]...)
}

// appendRequest appends a push, a gather or a read.
func appendRequest(b []byte, kind Kind, request TransferRequest) []byte {
	size := requestBytes + len(request.Pairs)*pairBytes
	if kind == KindGather {
		size += gatherBytes + len(request.Gather.Pages)*layerBytes
	}
	b = appendHeader(b, kind, size)
	b = binary.LittleEndian.AppendUint64(b, request.Transfer)
	b = binary.LittleEndian.AppendUint32(b, request.Slot)
	b = binary.LittleEndian.AppendUint64(b, uint64(request.Grant))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(request.Pairs)))
	for _, p := range request.Pairs {
		b = binary.LittleEndian.AppendUint32(b, p.Local.Index)
		b = binary.LittleEndian.AppendUint64(b, uint64(p.Local.Generation))
		b = binary.LittleEndian.AppendUint32(b, p.Remote.Index)
		b = binary.LittleEndian.AppendUint64(b, uint64(p.Remote.Generation))
		b = binary.LittleEndian.AppendUint32(b, p.Local.Length)
	}
	if kind != KindGather {
		return b
	}
	b = binary.LittleEndian.AppendUint32(b, request.Gather.Layers)
	b = binary.LittleEndian.AppendUint32(b, request.Gather.Stripes)
	for _, page := range request.Gather.Pages {
		b = binary.LittleEndian.AppendUint32(b, page.Index)
		b = binary.LittleEndian.AppendUint64(b, uint64(page.Generation))
	}
	return b
}

func appendCancel(b []byte, transfer uint64) []byte {
	return binary.LittleEndian.AppendUint64(appendHeader(b, KindCancel, cancelBytes), transfer)
}

func appendDone(b []byte, transfer uint64, code effects.Code) []byte {
	b = binary.LittleEndian.AppendUint64(appendHeader(b, KindDone, doneBytes), transfer)
	return append(b, byte(code))
}

// ReadFrame reads one frame of at most limit bytes. The body is part of the buffer that ReadFrame returns, which is
// buf if that was large enough.
func ReadFrame(r io.Reader, buf []byte, limit int) (kind Kind, body, grown []byte, err error) {
	number, body, grown, err := framing.ReadFrame(r, buf, limit)
	return Kind(number), body, grown, err
}

func parseBuffer(b []byte) effects.Buffer {
	return effects.Buffer{
		ID:        effects.BufferID(b[:16]),
		Pages:     binary.LittleEndian.Uint32(b[16:]),
		PageBytes: binary.LittleEndian.Uint64(b[20:]),
	}
}

// ParseHello parses the body of a hello.
func ParseHello(b []byte) (h Hello, err error) {
	if len(b) != helloBytes {
		return h, framing.SizeError("hello", len(b), helloBytes)
	}
	switch m := binary.LittleEndian.Uint32(b); {
	case m == Magic:
	case m&^versionMask == Magic&^versionMask:
		return h, fmt.Errorf("%w: the peer speaks version %d of the data plane protocol, this node version %d; run the same "+
			"version of kvferry at both ends",
			ErrMalformed, m&versionMask, Magic&versionMask)
	default:
		return h, fmt.Errorf("%w: hello begins with %#x; %#x is expected", ErrMalformed, m, Magic)
	}
	b = b[4:]
	h.From, h.To, h.Proof, h.Session = effects.Incarnation(b[:16]), effects.Incarnation(b[16:32]), [16]byte(b[32:48]),
		[16]byte(b[48:64])
	h.Buffer = parseBuffer(b[64:])
	if h.From == (effects.Incarnation{}) {
		return h, fmt.Errorf("%w: hello without an incarnation", ErrMalformed)
	}
	return h, nil
}

func parseWelcome(b []byte) (w Welcome, err error) {
	if len(b) != welcomeBytes {
		return w, framing.SizeError("welcome", len(b), welcomeBytes)
	}
	return Welcome{
		Code:   effects.CodeFromWire(uint32(b[0])),
		From:   effects.Incarnation(b[1:17]),
		Buffer: parseBuffer(b[17:]),
		Proof:  [16]byte(b[welcomeBytes-16:]),
	}, nil
}

func parseRequest(b []byte, pairsMax int) (request TransferRequest, err error) {
	if len(b) < requestBytes {
		return request, framing.SizeError("push or read", len(b), requestBytes)
	}
	n := binary.LittleEndian.Uint32(b[20:])
	if n == 0 || uint64(n) > uint64(pairsMax) || len(b) != requestBytes+int(n)*pairBytes {
		return request, fmt.Errorf("%w: push or read of %d pairs in %d bytes; give 1 to %d pairs of %d bytes", ErrMalformed, n,
			len(b), pairsMax, pairBytes)
	}
	request.Transfer = binary.LittleEndian.Uint64(b)
	request.Slot = binary.LittleEndian.Uint32(b[8:])
	request.Grant = effects.GrantID(binary.LittleEndian.Uint64(b[12:]))
	request.Pairs = make([]effects.Pair, n)
	for i := range request.Pairs {
		q := b[requestBytes+i*pairBytes:]
		p := &request.Pairs[i]
		p.Local.Index = binary.LittleEndian.Uint32(q)
		p.Local.Generation = effects.Generation(binary.LittleEndian.Uint64(q[4:]))
		p.Remote.Index = binary.LittleEndian.Uint32(q[12:])
		p.Remote.Generation = effects.Generation(binary.LittleEndian.Uint64(q[16:]))
		p.Local.Length = binary.LittleEndian.Uint32(q[24:])
	}
	return request, nil
}

// parseGather parses the body of a push that gathers: the body of a push, followed by the initiator's pages.
func parseGather(b []byte, pagesMax int) (request TransferRequest, err error) {
	if len(b) < requestBytes {
		return request, framing.SizeError("gather", len(b), requestBytes)
	}
	push := uint64(requestBytes) + uint64(binary.LittleEndian.Uint32(b[20:]))*pairBytes
	if uint64(len(b)) < push+gatherBytes {
		return request, fmt.Errorf("%w: gather in %d bytes; its pairs alone have %d", ErrMalformed, len(b), push)
	}
	if request, err = parseRequest(b[:push], pagesMax); err != nil {
		return request, err
	}
	b = b[push:]
	g := &request.Gather
	g.Layers, g.Stripes = binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
	n := uint64(len(request.Pairs)) * uint64(g.Layers)
	if b = b[gatherBytes:]; g.Layers == 0 || n > uint64(pagesMax) || uint64(len(b)) != n*layerBytes {
		return request, fmt.Errorf("%w: gather of %d pages of %d layers each in %d bytes; give %d bytes for each of at most %d",
			ErrMalformed, len(request.Pairs), g.Layers, len(b), layerBytes, pagesMax)
	}
	g.Pages = make([]effects.Page, n)
	for i := range g.Pages {
		q := b[i*layerBytes:]
		g.Pages[i] = effects.Page{Index: binary.LittleEndian.Uint32(q),
			Generation: effects.Generation(binary.LittleEndian.Uint64(q[4:])),
			Length:     request.Pairs[i/int(g.Layers)].Local.Length / g.Layers}
	}
	if !g.Fits(request.Pairs) {
		return request, fmt.Errorf("%w: gather of %d layers in %d stripes, by which the lengths of its pages do not divide",
			ErrMalformed, g.Layers, g.Stripes)
	}
	return request, nil
}

func parseCancel(b []byte) (transfer uint64, err error) {
	if len(b) != cancelBytes {
		return 0, framing.SizeError("cancel", len(b), cancelBytes)
	}
	return binary.LittleEndian.Uint64(b), nil
}

func parseDone(b []byte) (transfer uint64, code effects.Code, err error) {
	if len(b) != doneBytes {
		return 0, 0, framing.SizeError("done", len(b), doneBytes)
	}
	return binary.LittleEndian.Uint64(b), effects.CodeFromWire(uint32(b[8])), nil
}
