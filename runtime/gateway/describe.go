package gateway

import (
	"context"
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime/control"
)

// A Description contains the facts that a rank of a vLLM engine reports over its side channel. A Config for engines of
// this kind takes Config.CompatibilityHash, Config.RegionNames, Config.CacheLayout and Config.AttentionBackend from a
// Description.
type Description struct {
	CompatibilityHash string
	Metadata          protocol.NixlMetadata // must not be changed
}

// Describe asks the side channel of an engine for its description. The control transport that sideChannels opens
// carries the request; ctx bounds the wait.
func Describe(ctx context.Context, sideChannels control.Opener, host string, port uint16, stage, rank uint32) (
	*Description, error,
) {
	bad := func(why string, err error) (*Description, error) {
		return nil, fmt.Errorf("the side channel at %s port %d %s (%w): give the address of vLLM's NIXL connector, which the "+
			"engine has in VLLM_NIXL_SIDE_CHANNEL_HOST and VLLM_NIXL_SIDE_CHANNEL_PORT", host, port, why, err)
	}
	events := make(eventQueue, 4) // more events than a request causes
	t, err := sideChannels(control.Env{Sink: events})
	if err != nil {
		return nil, err
	}
	defer func() { _ = t.Shutdown(context.WithoutCancel(ctx)) }()
	question := protocol.NixlMetadataRequest{PPRank: stage, TPRank: rank}
	t.Open(&effects.Open{Corr: 1, Channel: effects.ChannelMeta, Addr: effects.Addr{Host: host, Port: port}})
	for {
		var ev effects.Event
		select {
		case ev = <-events:
		case <-ctx.Done():
			return bad("does not answer", ctx.Err())
		}
		switch ev := ev.(type) {
		case *effects.Opened:
			if ev.Code != effects.OK {
				return bad("cannot be reached, or the host name has no address", fmt.Errorf("%v", ev.Code))
			}
			t.Send(&effects.Send{Corr: 2, Conn: ev.Conn, Body: effects.AppendPart(nil, question.Append(nil))})
		case *effects.Unanswered:
			return bad("does not answer", fmt.Errorf("%v", ev.Code))
		case *effects.Replied:
			payload, _, _ := effects.CutPart(ev.Body)
			hello, d, limits := protocol.NixlHello{}, Description{}, protocol.DefaultLimits()
			if err := hello.Decode(payload, &limits); err != nil {
				return bad("sends a reply that is not a description", err)
			}
			if err := d.Metadata.Decode(hello.Metadata, &limits); err != nil {
				return bad("sends a reply that is not a description", err)
			}
			if foreign := d.Metadata.VersionMismatch(); foreign != "" {
				return nil, fmt.Errorf("the side channel at %s port %d has an unsupported NIXL connector, %s; want %s: run a "+
					"release of vLLM with one of these versions", host, port, foreign, protocol.NixlVersions)
			}
			d.CompatibilityHash = string(hello.Hash)
			return &d, nil
		default:
		}
	}
}

// eventQueue is a control.Sink for a few events.
type eventQueue chan effects.Event

// Post implements control.Sink.
func (q eventQueue) Post(ev effects.Event) {
	select {
	case q <- ev:
	default: // nobody reads any more
	}
}
