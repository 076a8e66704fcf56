package gateway

import (
	"encoding/binary"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/register"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
)

// says is what a plain rank would say of itself in a hello.
func (g *core) says(now effects.Time, who effects.Incarnation, echo int64, of *geometry.Geometry, key uint64,
) protocol.HelloExt {
	page, _ := g.cfg.Own.CellBytes()
	ext := protocol.HelloExt{
		ProtoMin: link.VersionMin, ProtoMax: link.VersionMax, Incarnation: protocol.UUID(who),
		Caps:   protocol.CapCommit | protocol.CapLease | protocol.CapPull,
		Window: uint32(g.cfg.Window), PageBytes: page, Layout: g.cfg.Layout, Planes: [][]byte{[]byte(g.cfg.Plane)},
		Blobs:  [][]byte{binary.BigEndian.AppendUint64(nil, key)},
		Stamps: protocol.Stamps{ClockNS: int64(now), EchoNS: echo},
	}
	if of != nil {
		ext.Geometry = register.Numbers(of)
	}
	return ext
}

// buffer is the memory of a plain rank, as one of our kind would list it. Its address is nobody's business.
func (g *core) buffer(who effects.Incarnation, of *geometry.Geometry) []protocol.BufferInfo {
	page, _ := g.cfg.Own.CellBytes()
	return []protocol.BufferInfo{{UUID: protocol.UUID(who), Size: of.Pages() * page, PageSize: page}}
}

// read takes what a side channel answered. The hash is compared before anything else is decoded: what it stands for is
// what the rest means.
func (g *core) read(body []byte, w *geometry.Worker) (
	agent []byte, r geometry.Regions, code effects.Code, why effects.Why,
) {
	if err := g.hello.Decode(body, &g.cfg.Wire); err != nil {
		return nil, r, effects.Malformed, link.Undecodable(err)
	}
	if string(g.hello.Hash) != g.cfg.Hash {
		return nil, r, effects.Mismatch, effects.Why{
			Field: "compatibility_hash", Ours: g.cfg.Hash, Theirs: effects.Words(g.hello.Hash),
			Remedy: "run the same release of vLLM, model, dtype and attention backend at both ends, and give the hash that " +
				"the engine says",
		}
	}
	if err := g.meta.Decode(g.hello.Metadata, &g.cfg.Wire); err != nil {
		return nil, r, effects.Malformed, link.Undecodable(err)
	}
	if foreign := g.meta.Foreign(); foreign != "" {
		return nil, r, effects.Mismatch, effects.Why{
			Field: "nixl_connector_version", Ours: protocol.NixlVersions, Theirs: foreign,
			Remedy: "run a release of vLLM that has one of these",
		}
	}
	r, err := geometry.Of(&g.meta, w)
	if err != nil {
		return nil, r, effects.Mismatch, unfit(err)
	}
	return append([]byte(nil), g.meta.Agent...), r, effects.OK, effects.Why{}
}

// unfit is what is said of an error of geometry's.
func unfit(err error) effects.Why {
	x, ok := err.(*geometry.Error) // It is one.
	if !ok {
		return effects.Why{Field: "metadata", Theirs: err.Error()}
	}
	field := x.Field
	if x.Side != "" {
		field = x.Side + "'s " + field
	}
	return effects.Why{Field: field, Theirs: x.Value, Remedy: x.Remedy}
}
