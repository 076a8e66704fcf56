//go:build cgo && linux

package hccl

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/google/uuid"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/hccl/comm"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/epochs"
	"github.com/kvferry/kvferry/runtime/plane/framing"
	"github.com/kvferry/kvferry/runtime/secure"
)

// An initiatorExecutor carries out the decisions about a link that this node opened to push and to read.
type initiatorExecutor struct {
	*epochs.OutgoingLink
	plane  *Plane
	params commParams

	// Fields of the link's goroutine.
	rootInfo []byte    // root info of the newest epoch, if the ends use root info
	endpoint *endpoint // of the epoch that is up
	descs    []comm.Desc
}

// PerformHandshake implements epochs.Executor.
func (o *initiatorExecutor) PerformHandshake(conn net.Conn, token identity.Token) error {
	p := o.plane
	o.params.session = uuid.New()
	h := hello{from: o.OwnIncarnation, to: o.Peer, session: o.params.session, boot: p.boot, rank: p.cfg.Rank,
		regions: uint8(len(p.regions))}
	binding := secure.Binding(conn)
	h.proof = h.computeProof(token, binding)
	if _, err := conn.Write(appendHello(nil, h)); err != nil {
		return err
	}
	body, err := o.ReadWelcome(conn, uint8(kindWelcome))
	if err != nil {
		return err
	}
	w, err := parseWelcome(body)
	if err != nil {
		return epochs.NewRefusal(effects.Malformed, "%w", err)
	}
	if err := o.CheckWelcome(w.code, w.from, identity.EqualSecrets(w.proof, w.computeProof(h, token, binding))); err != nil {
		return err
	}
	o.Log = o.Log.With("by", w.link)
	for _, s := range w.pools {
		o.PeerPools = append(o.PeerPools, epochs.PeerPool{Buffer: s.Buffer, Base: s.Base})
	}
	o.params.peerRegions = int(w.regions)
	o.params.hccs = w.link == comm.HCCS
	if link := p.linkKindTo(w.rank, w.boot == p.boot); link != w.link {
		return epochs.NewRefusal(effects.Refused,
			"the peer expects the link %v, but this node expects %v; set HCCL_INTRA_ROCE_ENABLE alike on both nodes", w.link, link)
	}
	o.params.table, o.params.rank, _, err = comm.NewRankTable(p.cfg.Rank, w.rank)
	if err != nil {
		return epochs.NewRefusal(effects.Refused, "%w", err)
	}
	return nil
}

// linkKindTo returns the kind of link that carries the bytes between this NPU and the peer's NPU. With root info HCCL
// itself detects whether both ends are on one host, whatever their ranks call the host; then sameHost decides.
func (p *Plane) linkKindTo(rank comm.Rank, sameHost bool) comm.Link {
	mine := p.cfg.Rank
	if p.cfg.UseRootInfo {
		mine.Server, rank.Server = "here", "there"
		if sameHost {
			rank.Server = mine.Server
		}
	}
	return comm.LinkOf(p.cfg.SoC, mine, rank, p.lib.Info().IntraRoCE)
}

// failureCheckInterval is the interval at which a link asks HCCL, while no batch completes, for a failure of the
// communicator that the stream does not report.
const failureCheckInterval = 250 * time.Millisecond

// NextPause implements epochs.Executor.
func (o *initiatorExecutor) NextPause() time.Duration {
	if o.InFlight() > 0 {
		return failureCheckInterval
	}
	return epochs.MaxPause
}

// Poll implements epochs.Executor.
func (o *initiatorExecutor) Poll(idle bool) {
	if !idle || o.InFlight() == 0 {
		return
	}
	err := o.plane.device.Do(func(t *acl.Thread) error { return o.endpoint.comm.AsyncError(t) })
	if failed := (*comm.Error)(nil); errors.As(err, &failed) && !errors.Is(err, acl.Unsupported) {
		o.Log.Warn("a communicator has failed", "epoch", o.Epoch(), "err", err)
		o.StepMachine(plane.Now(), communicator.Event{Kind: communicator.BatchEnded, Epoch: o.Epoch()})
	}
}

// ReadFrames implements epochs.Executor. How the connection ends proves nothing to an initiator. But if this end closed it
// with unread bytes, the target would see a reset, which is no proof between hosts (M4).
func (o *initiatorExecutor) ReadFrames() {
	o.OnChannelEnd(o.Channel.ReadFrames(o.handleFrame))
	_ = o.Channel.AwaitEnd()
}

func (o *initiatorExecutor) handleFrame(what uint8, body []byte) error {
	k := kind(what)
	switch k {
	case kindAccept:
		a, err := parseAccept(body)
		if err != nil {
			return err
		}
		a.root = append([]byte(nil), a.root...)
		return o.PushFromPeer(func(now effects.Time) {
			if len(a.root) > 0 {
				o.rootInfo = a.root
			}
			o.StepMachine(now, communicator.Event{
				Kind: communicator.Accepted, Epoch: a.epoch, Code: a.code, Revoked: a.revoked, MoreRevoked: a.moreRevoked,
			})
		})
	case kindFenced:
		epoch, err := parseEpoch(body)
		if err != nil {
			return err
		}
		return o.PushFromPeer(func(now effects.Time) {
			o.StepMachine(now, communicator.Event{Kind: communicator.TargetFenced, Epoch: epoch})
		})
	case kindHello, kindWelcome, kindOffer, kindGone:
	}
	return fmt.Errorf("%w: a target sent a frame of kind %d", framing.ErrMalformed, k)
}
