//go:build cgo && linux

package hccl

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/runtime/hccl/comm"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/epochs"
	"github.com/kvferry/kvferry/runtime/plane/framing"
	"github.com/kvferry/kvferry/runtime/secure"
)

// An targetExecutor carries out the decisions about a link that a peer opened.
type targetExecutor struct {
	*epochs.IncomingLink
	plane  *Plane
	hello  hello
	link   comm.Link // the kind of link that carries the bytes
	params commParams
}

// ParseHello implements epochs.TargetExecutor.
func (in *targetExecutor) ParseHello(body []byte) (epochs.Hello, error) {
	h, err := parseHello(body)
	in.hello = h
	in.link = in.plane.linkKindTo(h.rank, h.boot == in.plane.boot)
	return epochs.Hello{From: h.from, To: h.to, Session: h.session, Boot: h.boot}, err
}

// VerifyHello implements epochs.TargetExecutor.
func (in *targetExecutor) VerifyHello(token identity.Token) bool {
	return identity.EqualSecrets(in.hello.proof, in.hello.computeProof(token, secure.Binding(in.Channel.Conn())))
}

// AdmitPeer implements epochs.TargetExecutor.
func (in *targetExecutor) AdmitPeer() (mapped bool, code effects.Code, err error) {
	p, h := in.plane, in.hello
	in.Log = in.Log.With("by", in.link)
	mapped = in.link == comm.HCCS
	if mapped && slices.ContainsFunc(p.pool.Pools(), func(s plane.ServedPool) bool { return s.Host }) {
		return mapped, effects.Unsupported, errors.New("the pool is in host memory, which no NPU reaches over HCCS; set " +
			"HCCL_INTRA_ROCE_ENABLE=1 on both nodes (on A2 with HCCL_INTRA_PCIE_ENABLE=0), or keep the pool on the NPU")
	}
	table, rank, _, err := comm.NewRankTable(p.cfg.Rank, h.rank)
	if err != nil {
		return mapped, effects.Refused, err
	}
	in.params = commParams{session: h.session, table: table, rank: rank, peerRegions: int(h.regions), hccs: mapped}
	return mapped, effects.OK, nil
}

// BuildWelcome implements epochs.TargetExecutor.
func (in *targetExecutor) BuildWelcome(code effects.Code, token *identity.Token) []byte {
	p := in.plane
	w := welcome{
		code: code, from: p.env.Incarnation, boot: p.boot, link: in.link, rank: p.cfg.Rank, pools: p.pool.Pools(),
		regions: uint8(len(p.regions)),
	}
	if token != nil {
		w.from = in.To
		w.proof = w.computeProof(in.hello, *token, secure.Binding(in.Channel.Conn()))
	}
	return appendWelcome(nil, w)
}

// HandleFrame implements epochs.TargetExecutor.
func (in *targetExecutor) HandleFrame(what uint8, body []byte) error {
	switch k := kind(what); k {
	case kindOffer:
		number, root, err := parseOffer(body)
		if err != nil {
			return err
		}
		return in.handleOffer(number, slices.Clone(root))
	case kindFenced, kindGone:
		number, err := parseEpoch(body)
		switch {
		case err != nil:
			return err
		case k == kindGone:
			in.HandleGone(number)
		default:
			in.HandleFenced(number)
		}
		return nil
	case kindHello, kindWelcome, kindAccept:
	}
	return fmt.Errorf("%w: an initiator sent a frame of kind %d", framing.ErrMalformed, what)
}

// handleOffer begins an epoch. Our end is made once the offer was accepted.
func (in *targetExecutor) handleOffer(number uint64, root []byte) error {
	p := in.plane
	own, err := p.makeRootInfo(&in.params)
	if err != nil {
		return err
	}
	if own != nil {
		root = own
	}
	l := &targetEndpoint{executor: in, epoch: number, closeRequested: make(chan struct{})}
	begun, err := in.HandleOffer(number, l, func(code effects.Code, revoked []effects.GrantID, more bool) []byte {
		return appendAccept(nil, accept{epoch: number, code: code, root: own, revoked: revoked, moreRevoked: more})
	})
	switch {
	case begun && err != nil:
		p.wg.Go(func() { in.OnEndpointClosed(number, true, true) }) // nothing was made
	case begun:
		p.wg.Go(func() { l.runEndpoint(root) })
	}
	return err
}

// AwaitMargin implements epochs.TargetExecutor.
func (in *targetExecutor) AwaitMargin(epochs.Endpoint) { waitForHardware(peerMargin) }

// HangUp implements epochs.TargetExecutor.
func (in *targetExecutor) HangUp() { _ = in.Channel.Conn().Close() }
