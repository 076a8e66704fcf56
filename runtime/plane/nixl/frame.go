package nixl

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/framing"
)

// magic begins every hello. The last byte is the version.
const magic uint32 = 0x4b564e01

// A kind identifies what a frame contains.
type kind uint8

// Kinds of frames. The first is a hello, the second a welcome. The others are about epochs and are sent by the
// initiator (offer, busy, idle), the target (accept, met) or both (fenced, gone).
const (
	kindHello kind = iota + 1
	kindWelcome
	kindOffer
	kindAccept
	kindFenced
	kindGone
	kindMet  // the target's agent has received the initiator's notice
	kindBusy // the initiator waits for the target's agent
	kindIdle // the initiator waits no longer
)

const (
	helloBytes   = 4 + 5*16
	welcomeBytes = 1 + 16 + 16 + 16 + 4 + 8 + 8 + 8 + 16
	// maxMetadata bounds an agent's metadata. A region has some hundred bytes for each transport.
	maxMetadata = 64 << 10
	epochBytes  = 8
	acceptBytes = epochBytes + 1 + 1 + 2 + 4
	// maxFrame is the length of the longest frame.
	maxFrame = framing.HeaderBytes + acceptBytes + 8*plane.MaxRevoked + maxMetadata
)

// hello is the first message of an initiator.
type hello struct {
	from, to effects.Incarnation
	proof    [16]byte // proves that the initiator has the token which the target's machine made for from
	session  [16]byte // random; the names of the link's agents contain it
	boot     [16]byte // of the initiator's host, to find out whether both ends are on one host
}

// welcome answers a hello. If code is not OK, the other fields must not be trusted.
type welcome struct {
	code   effects.Code
	from   effects.Incarnation
	boot   [16]byte
	buffer effects.Buffer
	base   uint64   // the address of the buffer
	probe  uint64   // an address at which a byte may be read and written at any time
	proof  [16]byte // proves that the target has the token and has received this hello
}

// accept answers the offer of an epoch.
type accept struct {
	epoch    uint64
	code     effects.Code
	revoked  []effects.GrantID // grants of the initiator that were revoked
	more     bool              // there were further grants: all grants made before this answer count as revoked
	metadata []byte            // of the target's agent
}

func appendHello(b []byte, h hello) []byte {
	b = framing.AppendHeader(b, uint8(kindHello), helloBytes)
	b = binary.LittleEndian.AppendUint32(b, magic)
	b = append(b, h.from[:]...)
	b = append(b, h.to[:]...)
	b = append(b, h.proof[:]...)
	b = append(b, h.session[:]...)
	return append(b, h.boot[:]...)
}

func parseHello(b []byte) (h hello, err error) {
	if len(b) != helloBytes {
		return h, framing.SizeError("hello", len(b), helloBytes)
	}
	if m := binary.LittleEndian.Uint32(b); m != magic {
		return h, fmt.Errorf("%w: hello begins with %#x; %#x is expected: run the same version of kvferry at both ends",
			framing.ErrMalformed, m, magic)
	}
	h.from, h.to, h.proof = effects.Incarnation(b[4:20]), effects.Incarnation(b[20:36]), [16]byte(b[36:52])
	h.session, h.boot = [16]byte(b[52:68]), [16]byte(b[68:84])
	if h.from == (effects.Incarnation{}) {
		return h, fmt.Errorf("%w: hello without an incarnation", framing.ErrMalformed)
	}
	return h, nil
}

// computeProof returns the proof that a hello needs, given the token.
func (h hello) computeProof(token identity.Token, binding []byte) [16]byte {
	h.proof = [16]byte{}
	return token.Prove("hello", append(appendHello(nil, h), binding...))
}

// computeProof returns the proof that a welcome needs in answer to hello h.
func (w welcome) computeProof(h hello, token identity.Token, binding []byte) [16]byte {
	w.proof = [16]byte{}
	return token.Prove("welcome", h.session[:], append(appendWelcome(nil, w), binding...))
}

func appendWelcome(b []byte, w welcome) []byte {
	b = framing.AppendHeader(b, uint8(kindWelcome), welcomeBytes)
	b = append(b, byte(w.code))
	b = append(b, w.from[:]...)
	b = append(b, w.boot[:]...)
	b = append(b, w.buffer.ID[:]...)
	b = binary.LittleEndian.AppendUint32(b, w.buffer.Pages)
	b = binary.LittleEndian.AppendUint64(b, w.buffer.PageBytes)
	b = binary.LittleEndian.AppendUint64(b, w.base)
	b = binary.LittleEndian.AppendUint64(b, w.probe)
	return append(b, w.proof[:]...)
}

func parseWelcome(b []byte) (w welcome, err error) {
	if len(b) != welcomeBytes {
		return w, framing.SizeError("welcome", len(b), welcomeBytes)
	}
	w.code, w.from, w.boot = effects.CodeFromWire(uint32(b[0])), effects.Incarnation(b[1:17]), [16]byte(b[17:33])
	if w.code != effects.OK {
		return w, nil
	}
	w.buffer = effects.Buffer{ID: effects.BufferID(b[33:49]), Pages: binary.LittleEndian.Uint32(b[49:]),
		PageBytes: binary.LittleEndian.Uint64(b[53:])}
	w.base, w.probe, w.proof = binary.LittleEndian.Uint64(b[61:]), binary.LittleEndian.Uint64(b[69:]), [16]byte(b[77:])
	if p := w.buffer; p.Pages == 0 || p.PageBytes == 0 || p.PageBytes > (math.MaxUint64-w.base)/uint64(p.Pages) {
		return w, fmt.Errorf("%w: welcome with a pool of %d pages of %d bytes at address %#x, which is empty or exceeds the "+
			"address space", framing.ErrMalformed, p.Pages, p.PageBytes, w.base)
	}
	return w, nil
}

func appendEpoch(b []byte, k kind, epoch uint64) []byte {
	return binary.LittleEndian.AppendUint64(framing.AppendHeader(b, uint8(k), epochBytes), epoch)
}

func parseEpoch(b []byte) (epoch uint64, err error) {
	if len(b) != epochBytes {
		return 0, framing.SizeError("message about an epoch", len(b), epochBytes)
	}
	return checkEpoch(binary.LittleEndian.Uint64(b))
}

func checkEpoch(epoch uint64) (uint64, error) {
	if epoch == 0 {
		return 0, fmt.Errorf("%w: epoch 0; epochs begin at 1", framing.ErrMalformed)
	}
	return epoch, nil
}

func appendAccept(b []byte, a accept) []byte {
	b = framing.AppendHeader(b, uint8(kindAccept), acceptBytes+8*len(a.revoked)+len(a.metadata))
	b = binary.LittleEndian.AppendUint64(b, a.epoch)
	b = append(b, byte(a.code))
	more := byte(0)
	if a.more {
		more = 1
	}
	b = append(b, more)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(a.revoked)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(a.metadata)))
	for _, id := range a.revoked {
		b = binary.LittleEndian.AppendUint64(b, uint64(id))
	}
	return append(b, a.metadata...)
}

// parseAccept parses an accept. The metadata is a part of b.
func parseAccept(b []byte) (a accept, err error) {
	if len(b) < acceptBytes {
		return a, framing.SizeError("accept", len(b), acceptBytes)
	}
	a.code, a.more = effects.CodeFromWire(uint32(b[8])), b[9] == 1
	n, metadata := int(binary.LittleEndian.Uint16(b[10:])), int64(binary.LittleEndian.Uint32(b[12:]))
	if b[9] > 1 || n > plane.MaxRevoked || metadata > maxMetadata || int64(len(b)) != int64(acceptBytes+8*n)+metadata ||
		a.code == effects.OK && metadata == 0 {
		return a, fmt.Errorf("%w: accept of %d bytes with code %s, flag %d, %d revoked grants and %d bytes of metadata",
			framing.ErrMalformed, len(b), a.code, b[9], n, metadata)
	}
	rest := b[acceptBytes:]
	for range n {
		a.revoked = append(a.revoked, effects.GrantID(binary.LittleEndian.Uint64(rest)))
		rest = rest[8:]
	}
	a.metadata = rest
	a.epoch, err = checkEpoch(binary.LittleEndian.Uint64(b))
	return a, err
}
