package gateway

import (
	"encoding/binary"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/register"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
)

// says returns what a plain rank would state about itself in a hello, if it spoke kvferry's protocol.
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

// buffer returns the memory of a plain rank as a peer of kvferry would list it. The address is left out, because no
// peer needs it.
func (g *core) buffer(who effects.Incarnation, of *geometry.Geometry) []protocol.BufferInfo {
	page, _ := g.cfg.Own.CellBytes()
	return []protocol.BufferInfo{{UUID: protocol.UUID(who), Size: of.Pages() * page, PageSize: page}}
}

// read decodes the answer of a side channel. The hash is compared before anything else is decoded, because it
// determines how the rest must be interpreted.
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

// unfit converts an error of package geometry into a Why.
func unfit(err error) effects.Why {
	x, ok := err.(*geometry.Error) // The geometry package returns only this type.
	if !ok {
		return effects.Why{Field: "metadata", Theirs: err.Error()}
	}
	field := x.Field
	if x.Side != "" {
		field = x.Side + "'s " + field
	}
	return effects.Why{Field: field, Theirs: x.Value, Remedy: x.Remedy}
}
