package hccl

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/runtime/hccl/comm"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/framing"
)

// magic begins every hello. Its least significant byte, which is the first on the wire, is the version.
const magic uint32 = 0x4b564803

// A kind says what a frame is.
type kind uint8

// Kinds of frames. The first frame is a hello, the second a welcome. The remaining kinds are about epochs: the
// initiator sends offer and gone, the target accept, and both send fenced.
const (
	kindHello kind = iota + 1
	kindWelcome
	kindOffer
	kindAccept
	kindFenced
	kindGone
)

const (
	rankBytes    = 4 + 2 + 16 + 1 + 8 + 8 + 1 + serverMax
	serverMax    = 64
	helloBytes   = 4 + 5*16 + rankBytes + 1
	poolBytes    = 16 + 4 + 8 + 8 + 1
	poolsMax     = 2 // pools that a peer may serve
	welcomeBytes = 1 + 16 + 16 + 1 + rankBytes + poolsMax*poolBytes + 1 + 16
	// rootMax is the size of HCCL's root info: bytes that rank 0 of a communicator makes, and that the other end needs
	// to join. An offer has the root info if the initiator is rank 0, an accept if the target is.
	rootMax     = 4108
	epochBytes  = 8
	offerBytes  = epochBytes + 2
	acceptBytes = epochBytes + 1 + 1 + 2 + 2
	// frameMax bounds every frame.
	frameMax = framing.HeaderBytes + acceptBytes + 8*plane.MaxRevoked + rootMax
)

// hello is the first frame of an initiator.
type hello struct {
	from, to effects.Incarnation
	proof    [16]byte // of the token that the target gave to from in the handshake; see computeProof
	session  [16]byte // random; part of the names of the link's communicators
	boot     [16]byte // of the initiator's host: shows whether both ends are on one host
	rank     comm.Rank
	regions  uint8 // number of regions that the initiator binds to each communicator
}

// welcome answers a hello. If the code is not OK, readers must ignore the remaining fields.
type welcome struct {
	code    effects.Code
	from    effects.Incarnation
	boot    [16]byte
	link    comm.Link // what carries the bytes, as the target sees it
	rank    comm.Rank
	pools   []plane.ServedPool // a pool, or two
	regions uint8              // number of regions that the target binds to each communicator
	proof   [16]byte           // of the token, and of the hello's session; see computeProof
}

// accept answers the offer of an epoch.
type accept struct {
	epoch       uint64
	code        effects.Code
	revoked     []effects.GrantID // grants of the initiator that were revoked
	moreRevoked bool              // not all fit into revoked: all grants made before this answer count as revoked
	root        []byte            // root info, if the target is rank 0 and the ends use root info
}

func appendRank(b []byte, r comm.Rank) []byte {
	b = binary.LittleEndian.AppendUint32(b, r.Device)
	b = binary.LittleEndian.AppendUint16(b, r.Port)
	at := r.Address.As16()
	b = append(b, at[:]...)
	pod := comm.Pod{}
	if r.Pod == nil {
		b = append(b, 0)
	} else {
		b, pod = append(b, 1), *r.Pod
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(pod.ID))
	b = binary.LittleEndian.AppendUint64(b, uint64(pod.Device))
	var server [serverMax]byte
	b = append(b, byte(copy(server[:], r.Server)))
	return append(b, server[:]...)
}

func parseRank(b []byte) (r comm.Rank, err error) {
	length := int(b[39])
	if length > serverMax || b[22] > 1 {
		return r, fmt.Errorf("%w: a rank has a server id of %d bytes and the pod mark %d; the limit is %d bytes, and the mark is 0 or 1",
			framing.ErrMalformed, length, b[22], serverMax)
	}
	r = comm.Rank{
		Device: binary.LittleEndian.Uint32(b), Port: binary.LittleEndian.Uint16(b[4:]),
		Address: netip.AddrFrom16([16]byte(b[6:22])).Unmap(), Server: string(b[40 : 40+length]),
	}
	if b[22] == 1 {
		r.Pod = &comm.Pod{ID: int64(binary.LittleEndian.Uint64(b[23:])), Device: int64(binary.LittleEndian.Uint64(b[31:]))}
	}
	return r, nil
}

func appendHello(b []byte, h hello) []byte {
	b = framing.AppendHeader(b, uint8(kindHello), helloBytes)
	b = binary.LittleEndian.AppendUint32(b, magic)
	b = append(b, h.from[:]...)
	b = append(b, h.to[:]...)
	b = append(b, h.proof[:]...)
	b = append(b, h.session[:]...)
	b = append(b, h.boot[:]...)
	return append(appendRank(b, h.rank), h.regions)
}

func parseHello(b []byte) (h hello, err error) {
	if len(b) != helloBytes {
		return h, framing.SizeError("hello", len(b), helloBytes)
	}
	if m := binary.LittleEndian.Uint32(b); m != magic {
		return h, fmt.Errorf("%w: hello begins with %#x, but this node expects %#x: run the same version of kvferry at both ends",
			framing.ErrMalformed, m, magic)
	}
	h.from, h.to, h.proof = effects.Incarnation(b[4:20]), effects.Incarnation(b[20:36]), [16]byte(b[36:52])
	h.session, h.boot = [16]byte(b[52:68]), [16]byte(b[68:84])
	if h.from == (effects.Incarnation{}) {
		return h, fmt.Errorf("%w: hello without an incarnation", framing.ErrMalformed)
	}
	h.regions = b[helloBytes-1]
	h.rank, err = parseRank(b[84:])
	return h, err
}

// computeProof returns the proof that this hello must carry: of the token, over the hello with a zero proof.
func (h hello) computeProof(token identity.Token, binding []byte) [16]byte {
	h.proof = [16]byte{}
	return token.Prove("hello", append(appendHello(nil, h), binding...))
}

// computeProof returns the proof that this welcome must carry in answer to a hello: of the token, over the hello's
// session and this welcome with a zero proof.
func (w welcome) computeProof(h hello, token identity.Token, binding []byte) [16]byte {
	w.proof = [16]byte{}
	return token.Prove("welcome", h.session[:], append(appendWelcome(nil, w), binding...))
}

func appendWelcome(b []byte, w welcome) []byte {
	b = framing.AppendHeader(b, uint8(kindWelcome), welcomeBytes)
	b = append(b, byte(w.code))
	b = append(b, w.from[:]...)
	b = append(b, w.boot[:]...)
	b = appendRank(append(b, byte(w.link)), w.rank)
	for i := range poolsMax { // fields of an absent pool are zero
		s := plane.ServedPool{}
		if i < len(w.pools) {
			s = w.pools[i]
		}
		b = append(b, s.ID[:]...)
		b = binary.LittleEndian.AppendUint32(b, s.Pages)
		b = binary.LittleEndian.AppendUint64(b, s.PageBytes)
		b = binary.LittleEndian.AppendUint64(b, uint64(s.Base))
		host := byte(0)
		if s.Host {
			host = 1
		}
		b = append(b, host)
	}
	return append(append(b, w.regions), w.proof[:]...)
}

// parsePool parses a pool of a welcome; a pool without pages is absent.
func parsePool(b []byte) (s plane.ServedPool, err error) {
	s.Buffer = effects.Buffer{ID: effects.BufferID(b[:16]), Pages: binary.LittleEndian.Uint32(b[16:]),
		PageBytes: binary.LittleEndian.Uint64(b[20:])}
	s.Region = plane.Region{Base: uintptr(binary.LittleEndian.Uint64(b[28:])), Host: b[36] == 1}
	if s.Pages == 0 {
		return s, nil
	}
	if s.PageBytes == 0 || s.PageBytes > (math.MaxUint64-uint64(s.Base))/uint64(s.Pages) {
		return s, fmt.Errorf("%w: welcome names %d pages of %d bytes at %#x", framing.ErrMalformed, s.Pages, s.PageBytes, s.Base)
	}
	s.Bytes = uint64(s.Pages) * s.PageBytes
	return s, nil
}

func parseWelcome(b []byte) (w welcome, err error) {
	if len(b) != welcomeBytes {
		return w, framing.SizeError("welcome", len(b), welcomeBytes)
	}
	w.code, w.from, w.boot = effects.CodeFromWire(uint32(b[0])), effects.Incarnation(b[1:17]), [16]byte(b[17:33])
	if w.code != effects.OK {
		return w, nil
	}
	w.link = comm.Link(b[33])
	if w.rank, err = parseRank(b[34:]); err != nil {
		return w, err
	}
	b = b[34+rankBytes:]
	for i := range poolsMax {
		s, err := parsePool(b[i*poolBytes:])
		if err != nil {
			return w, err
		}
		if s.Pages > 0 {
			w.pools = append(w.pools, s)
		}
	}
	b = b[poolsMax*poolBytes:]
	w.regions, w.proof = b[0], [16]byte(b[1:])
	if n := len(w.pools); n == 0 || w.regions == 0 || n == poolsMax && w.pools[0].ID == w.pools[1].ID {
		return w, fmt.Errorf("%w: welcome names %d pools in %d regions; want 1 or 2 pools with different ids, and at least "+
			"1 region", framing.ErrMalformed, n, w.regions)
	}
	return w, nil
}

func appendEpoch(b []byte, k kind, epoch uint64) []byte {
	return binary.LittleEndian.AppendUint64(framing.AppendHeader(b, uint8(k), epochBytes), epoch)
}

func parseEpoch(b []byte) (epoch uint64, err error) {
	if len(b) != epochBytes {
		return 0, framing.SizeError("fenced or gone", len(b), epochBytes)
	}
	return checkEpoch(binary.LittleEndian.Uint64(b))
}

// checkEpoch refuses epoch 0.
func checkEpoch(epoch uint64) (uint64, error) {
	if epoch == 0 {
		return 0, fmt.Errorf("%w: epoch 0; the first is 1", framing.ErrMalformed)
	}
	return epoch, nil
}

// appendOffer appends the offer of an epoch, with the root info if the initiator is rank 0 and the ends use root info.
func appendOffer(b []byte, epoch uint64, root []byte) []byte {
	b = framing.AppendHeader(b, uint8(kindOffer), offerBytes+len(root))
	b = binary.LittleEndian.AppendUint64(b, epoch)
	return append(binary.LittleEndian.AppendUint16(b, uint16(len(root))), root...)
}

// parseOffer parses an offer. The root info is a part of b.
func parseOffer(b []byte) (epoch uint64, root []byte, err error) {
	if len(b) < offerBytes {
		return 0, nil, framing.SizeError("offer", len(b), offerBytes)
	}
	n := int(binary.LittleEndian.Uint16(b[epochBytes:]))
	if n > rootMax || len(b) != offerBytes+n {
		return 0, nil, framing.SizeError("offer", len(b), offerBytes+min(n, rootMax))
	}
	epoch, err = checkEpoch(binary.LittleEndian.Uint64(b))
	return epoch, b[offerBytes:], err
}

func appendAccept(b []byte, a accept) []byte {
	b = framing.AppendHeader(b, uint8(kindAccept), acceptBytes+8*len(a.revoked)+len(a.root))
	b = binary.LittleEndian.AppendUint64(b, a.epoch)
	b = append(b, byte(a.code))
	more := byte(0)
	if a.moreRevoked {
		more = 1
	}
	b = append(b, more)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(a.revoked)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(a.root)))
	for _, id := range a.revoked {
		b = binary.LittleEndian.AppendUint64(b, uint64(id))
	}
	return append(b, a.root...)
}

// parseAccept parses an accept. The root info is a part of b.
func parseAccept(b []byte) (a accept, err error) {
	if len(b) < acceptBytes {
		return a, framing.SizeError("accept", len(b), acceptBytes)
	}
	a.code = effects.CodeFromWire(uint32(b[8]))
	a.moreRevoked = b[9] == 1
	n, root := int(binary.LittleEndian.Uint16(b[10:])), int(binary.LittleEndian.Uint16(b[12:]))
	if b[9] > 1 || n > plane.MaxRevoked || root > rootMax || len(b) != acceptBytes+8*n+root {
		return a, fmt.Errorf("%w: accept has %d bytes, the mark %d, %d grants and %d bytes of root info",
			framing.ErrMalformed, len(b), b[9], n, root)
	}
	rest := b[acceptBytes:]
	for range n {
		a.revoked = append(a.revoked, effects.GrantID(binary.LittleEndian.Uint64(rest)))
		rest = rest[8:]
	}
	a.root = rest
	a.epoch, err = checkEpoch(binary.LittleEndian.Uint64(b))
	return a, err
}
