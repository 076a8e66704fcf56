package gateway

import (
	"encoding/binary"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/register"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
)

// makeHelloExt returns what a plain rank would state about itself in a hello, if it spoke kvferry's protocol.
func (g *core) makeHelloExt(now effects.Time, incarnation effects.Incarnation, echo int64, geo *geometry.Geometry, key uint64,
) protocol.HelloExt {
	page, _ := g.cfg.Own.CellBytes()
	ext := protocol.HelloExt{
		ProtoMin: link.VersionMin, ProtoMax: link.VersionMax, Incarnation: protocol.UUID(incarnation),
		Caps:   protocol.CapCommit | protocol.CapLease | protocol.CapPull,
		Window: uint32(g.cfg.Window), PageBytes: page, Layout: g.cfg.Layout, Planes: [][]byte{[]byte(g.cfg.Plane)},
		Blobs:  [][]byte{binary.BigEndian.AppendUint64(nil, key)},
		Stamps: protocol.Stamps{ClockNS: int64(now), EchoNS: echo},
	}
	if geo != nil {
		ext.Geometry = register.EncodeGeometry(geo)
	}
	return ext
}

// bufferInfos returns the memory of a plain rank as a peer of kvferry would list it. The address is left out, because
// no peer needs it.
func (g *core) bufferInfos(incarnation effects.Incarnation, geo *geometry.Geometry) []protocol.BufferInfo {
	page, _ := g.cfg.Own.CellBytes()
	return []protocol.BufferInfo{{UUID: protocol.UUID(incarnation), Size: geo.CountPages() * page, PageSize: page}}
}

// decodeMetadata decodes the answer of a side channel. The hash is compared before anything else is decoded, because it
// determines how the rest must be interpreted.
func (g *core) decodeMetadata(body []byte, w *geometry.Worker) (
	agent []byte, r geometry.Regions, code effects.Code, why effects.Why,
) {
	if err := g.nixlHello.Decode(body, &g.cfg.Wire); err != nil {
		return nil, r, effects.Malformed, link.DecodeReason(err)
	}
	if string(g.nixlHello.Hash) != g.cfg.Hash {
		return nil, r, effects.Mismatch, effects.Why{
			Field: "compatibility_hash", Ours: g.cfg.Hash, Theirs: effects.SanitizeText(g.nixlHello.Hash),
			Remedy: "run the same release of vLLM, model, dtype and attention backend at both ends, and give the hash that " +
				"the engine says",
		}
	}
	if err := g.nixlMetadata.Decode(g.nixlHello.Metadata, &g.cfg.Wire); err != nil {
		return nil, r, effects.Malformed, link.DecodeReason(err)
	}
	if foreign := g.nixlMetadata.VersionMismatch(); foreign != "" {
		return nil, r, effects.Mismatch, effects.Why{
			Field: "nixl_connector_version", Ours: protocol.NixlVersions, Theirs: foreign,
			Remedy: "run a release of vLLM with one of these versions",
		}
	}
	r, err := geometry.ParseRegions(&g.nixlMetadata, w)
	if err != nil {
		return nil, r, effects.Mismatch, whyUnfit(err)
	}
	return append([]byte(nil), g.nixlMetadata.Agent...), r, effects.OK, effects.Why{}
}

// whyUnfit converts an error of package geometry into a Why.
func whyUnfit(err error) effects.Why {
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
