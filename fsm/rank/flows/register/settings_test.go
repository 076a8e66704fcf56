package register

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
)

func smallGeometry() *geometry.Geometry {
	return &geometry.Geometry{
		Ranks: 1, Stages: 1, Heads: 2, CellHeads: 1, Blocks: 4, PerLogical: 1, BlockTokens: 16,
		Layers: []geometry.Layer{{Number: 0}, {Number: 1, Group: 1}},
	}
}

// What cannot work is refused by its name, and what is not said has a default.
func TestSettingsChecked(t *testing.T) {
	for _, c := range []struct {
		change func(*Settings)
		want   string // in the error; empty: none
	}{
		{func(*Settings) {}, ""},
		{func(s *Settings) { s.Geometry = nil }, ""},
		{func(s *Settings) { s.Geometry.Blocks = 5 }, "Geometry has 20 pages"},
		{func(s *Settings) { s.Geometry.Layers = nil }, "layers"},
		{func(s *Settings) { s.EngineID = "" }, "EngineID"},
		{func(s *Settings) { s.RegistrationLease = effects.Second }, "RegistrationLease"},
		{func(s *Settings) { s.ReceptionsMax = 1<<32 - 1 }, "ReceptionsMax"},
		{func(s *Settings) { s.ProducersMax = 1<<32 - 1 }, "ProducersMax"},
		{func(s *Settings) { s.FinishedMax = 1<<32 - 1 }, "FinishedMax"},
		{func(s *Settings) { s.RegistrationsMax = 1<<32 - 1 }, "RegistrationsMax"},
		{func(s *Settings) { s.ExpectedMax = 1<<32 - 1 }, "ExpectedMax"},
		{func(s *Settings) { s.NamesMax = 1<<32 - 1 }, "NamesMax"},
		{func(s *Settings) { s.RegisterWindow = 257 }, "RegisterWindow is 257"},
	} {
		s := Settings{Geometry: smallGeometry(), EngineID: "e"}
		c.change(&s)
		s.Fill()
		err := s.Check(16, effects.Second)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v; want an error about %q", s, err, c.want)
		}
	}
	off := Settings{EngineID: "e", ReceptionsMax: 9}
	off.Fill()
	if !reflect.DeepEqual(off, Settings{}) || off.Grants() != 0 || !reflect.DeepEqual(off.Need(8), kernel.Need{}) {
		t.Errorf("what is off needs %+v of %+v", off.Need(8), off)
	}
}

// Of whatever sizes, the largest Register fits, and all that tables have at a time has its deadlines and effects.
func TestSettingsNeed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Uint32Range(1, 1<<12)
		s := Settings{
			Geometry: smallGeometry(), ReceptionsMax: size.Draw(t, "receptions"), ProducersMax: size.Draw(t, "producers"),
			FinishedMax: size.Draw(t, "finished"), RegistrationsMax: size.Draw(t, "registrations"),
			ExpectedMax: size.Draw(t, "expected"),
		}
		s.Fill()
		parts, peers := int(s.parts()), size.Draw(t, "peers")
		if parts < int(s.ProducersMax) || parts < int(s.ReceptionsMax) || int(s.Grants()) != parts {
			t.Fatalf("%d parts, %d grants", parts, s.Grants())
		}
		n := s.Need(peers)
		// Each part may wait for an answer on both lanes, and its withdrawal have a deadline, too.
		if n.Sends < 2*parts+int(peers) || n.Revokes < parts || n.Transfers < int(s.RegistrationsMax) ||
			n.Deadlines < int(s.ReceptionsMax)+2*parts+int(s.FinishedMax+s.RegistrationsMax+s.ExpectedMax)+int(peers) ||
			n.Commands <= int(s.ReceptionsMax+s.FinishedMax+s.ExpectedMax) {
			t.Fatalf("%+v needs %+v", s, n)
		}
	})
}

// What a hello says of a cache is read as it was, into memory that had another one; what is no cache is not read.
func TestGeometriesAreSaid(t *testing.T) {
	used := geometry.Geometry{}
	rapid.Check(t, func(t *rapid.T) {
		n := func(name string, least, most uint32) uint32 { return rapid.Uint32Range(least, most).Draw(t, name) }
		g := geometry.Geometry{Ranks: n("ranks", 1, 8), Stages: n("stages", 1, 4), PerLogical: 1}
		g.BlockTokens = n("tokens", 1, 99)
		g.Rank, g.Stage = n("rank", 0, g.Ranks-1), n("stage", 0, g.Stages-1)
		if g.Blocks = n("blocks", 1, 1<<20); rapid.Bool().Draw(t, "heads") {
			g.Heads, g.CellHeads = g.Ranks*n("per rank", 1, 4), 1
		}
		first := n("first", 0, 1<<31)
		for i := range n("layers", 1, 9) {
			group := rapid.SampledFrom([]uint16{0, 1, 7, geometry.Shared}).Draw(t, "group")
			g.Layers = append(g.Layers, geometry.Layer{Number: first + i, Group: group})
		}
		said := EncodeGeometry(&g)
		got, ok := decodeGeometry(said, used)
		if used = got; !ok || !reflect.DeepEqual(got, g) {
			t.Fatalf("%+v was read as %+v, %v", g, got, ok)
		}
		if _, ok := decodeGeometry(said[:n("cut", 0, scalarCount)], geometry.Geometry{}); ok {
			t.Fatal("a cache without layers is one")
		}
		large := slices.Clone(said)
		at := n("large", 0, uint32(len(said)-1))
		if large[at] += 1 << 32; at >= scalarCount {
			large[at] += 1 << 48
		}
		if got, ok := decodeGeometry(large, geometry.Geometry{}); ok {
			t.Fatalf("%v is %+v", large, got)
		}
	})
	if _, ok := decodeGeometry(append(EncodeGeometry(smallGeometry()), 0), geometry.Geometry{}); ok {
		t.Error("a cache that has a layer twice is one")
	}
}
