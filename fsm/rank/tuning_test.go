package rank

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
)

// untunedNumbers are the numbers of rooms that are no field of a configuration, with why none is a threshold of work.
//
//kvferry:table
var untunedNumbers = map[string]string{
	"rank ReserveNone":          "a word for none",
	"kernel CountMax":           "refuses configurations; no rank gets there",
	"memory Check 100":          "all, in per cent",
	"p2p Check 100":             "all, in per cent",
	"pull Check 1_000_000":      "all, in millionths",
	"pull ReserveNone":          "a word for none",
	"staging Fill 2":            "a default",
	"kernel looksPerRow":        "a price: SweepRows is the bound",
	"table minCapacity":         "where a table's memory begins; it grows as it fills, in every run",
	"table pieceBits":           "the size of a table's pieces of memory (TestLargeTables)",
	"table pieceSize":           "likewise",
	"table pieceMask":           "likewise",
	"table appendValue 2":       "by how much the first of them grows",
	"table entriesPerPart":      "the size of an index's parts, of which each is one as small ones are (TestLargeTables)",
	"deferred comparedMax":      "which of the offers of a chunk are compared; each of them would do",
	"store shapesMax":           "shapes of keys; others are kept whole, and found all the same (TestShapesAreShared)",
	"store digitsMax":           "hex digits of a word",
	"table keepElements":        "memory that a free slot keeps; nothing depends on it but allocations",
	"table keepBytes":           "likewise",
	"allocqueue keyCountBytes":  "the size of one wanted page's record",
	"allocqueue MaxTime":        "an instant beyond all others",
	"allocqueue EngineClass":    "the engine's class",
	"replies MinTime":           "an instant before all others",
	"memory slotBits":           "the form of a grant's id",
	"memory GrantsMax":          "what fits that form; Config.GrantsMax is the bound",
	"prng ShuffleBits":          "the form of a shuffle",
	"prng half":                 "likewise",
	"prng mask":                 "likewise",
	"prng length":               "of SipHash",
	"landing hashMultiplier":    "of a hash",
	"outcomes multiplier":       "likewise",
	"store realmFactor":         "of a hash",
	"link million":              "a unit",
	"loan StateCount":           "how many there are",
	"p2p headerBytes":           "the form of a message",
	"p2p keyOverheadBytes":      "likewise",
	"p2p pageNameBytes":         "likewise",
	"p2p ownClass":              "a class",
	"link VersionMin":           "of our extensions",
	"link VersionMax":           "likewise",
	"put KeyHeadBytes":          "the form of a message",
	"put PageNameBytes":         "likewise",
	"recall pageNameBytes":      "likewise",
	"put HeadBytes":             "likewise",
	"rank tableMax":             "likewise",
	"rank tuningMax":            "likewise",
	"rank ArenaPool":            "a name",
	"rank devicePoolIndex":      "likewise",
	"memory PoolsMax":           "how many kinds of pools there are",
	"memory Fill 75":            "a default",
	"memory tenantWaitersMax":   "more than requests can wait, of which WaitersMax and ReservesMax are drawn",
	"link lastRows":             "a part of PeersMax, which is drawn",
	"engine scheduleRetry 20":   "keeps a shift from overflowing: what is shifted is bounded by BackoffMax long before",
	"notice scheduleRetry 20":   "likewise",
	"end pauseConn 20":          "likewise",
	"lease scheduleRetry 20":    "likewise",
	"lease formerMax":           "a connection beside the one that is there (TestRenewalsOfAFormerPeerHoldUpNoOther)",
	"link doubleTimes 30":       "likewise",
	"flow RecordRequest 2":      "one more than comes, so that there are soon none whose time is over",
	"outcomes addRow 2":         "likewise",
	"replies expirePerAdd":      "likewise",
	"store expirePerAdd":        "likewise",
	"staging DepthOf 31":        "keeps a number within 32 bits",
	"prng siphash13 3":          "rounds of SipHash",
	"lease EndByDone 2":         "whether its reader was spoken to more than once",
	"link handleBufferReply 32": "keeps a number within 32 bits",
	"link recordBuffers 32":     "likewise",
	"push startWrite 62":        "keeps a sum within 63 bits",
	"staging pagesWanted 2":     "two halves of a batch",
	"rank sweepLost 3":          "counts the tables that are swept before those of flows",
	"rank Recycle 2":            "draws as many identities as there once were",
	"table addEntry 2":          "how full an index is",
	"table addEntry 3":          "likewise",
	"table addEntry 4":          "likewise",
	"store allHex 9":            "a digit",
	"store allHex 5":            "a letter that is one",
	"table growCells 16":        "where an index's memory begins",
	"table addPart 16":          "likewise",
	"table growCells 2":         "by how much it grows",
	"table Hash 8":              "bytes of a word",
	"rank Recycle 32":           "keeps a size within 32 bits",
	"link Trip 2":               "doubles a time, up to its bound",
	"p2p backoffFactorMax":      "bounds how long a peer is left alone, not work",
	"memory SetTenantShare 100": "likewise",
	"rank onSetTenantShare 100": "a percentage",
	"p2p slowReplyPart":         "likewise",

	"geometry positionMax":          "the form of a position",
	"geometry RanksMax":             "what a peer can say; every walk is over what both said",
	"session keyCost":               "an estimate, which a bound that is drawn is compared with",
	"geometry StagesMax":            "likewise",
	"geometry LayersMax":            "likewise",
	"geometry HeadsMax":             "likewise",
	"geometry Shared":               "a name",
	"geometry Check 32":             "keeps a size within 32 bits",
	"geometry quoteMax":             "of an error's text",
	"register scalarCount":          "the form of a hello's geometry",
	"register releaseMemory 10":     "memory that a free slot keeps; nothing depends on it but allocations",
	"register laneRegistrations":    "a name",
	"register laneControl":          "likewise",
	"register ownClass":             "a class",
	"register checkRegistration 32": "keeps a number within 32 bits",
	"register parts 8":              "a default: how many ranks most producers have",
}

// Whatever bounds work is a field of some configuration, and so can be drawn: numbers in rooms that are not are listed
// above, with why. Constants are looked at by name, and numbers where something is compared with them or repeated as
// often as they say.
func TestWorkBoundsAreTunable(t *testing.T) {
	seen := map[string]bool{}
	check := func(where token.Position, name string) {
		seen[name] = true
		if untunedNumbers[name] == "" {
			t.Errorf("%s: %s bounds something and is no field of a configuration: make it one, which seeds of the simulator "+
				"draw (rank.Tuning), or say here why that is not needed", where, name)
		}
	}
	files := token.NewFileSet()
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == "directory" || d.Name() == "registrar" || d.Name() == "gateway") {
			return fs.SkipDir // No rank has one: its bounds are its own Config's.
		}
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			within := "" // a function, or none
			if f, ok := decl.(*ast.FuncDecl); ok {
				within = f.Name.Name
			}
			ast.Inspect(decl, func(n ast.Node) bool {
				for name, at := range bounding(n) {
					if within != "" && at.literal {
						name = within + " " + name
					}
					check(files.Position(at.pos), file.Name.Name+" "+name)
				}
				_, constants := n.(*ast.GenDecl)
				return !constants
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range untunedNumbers {
		if !seen[name] {
			t.Errorf("%s bounds nothing any more: take it off the list", name)
		}
	}
}

type bound struct {
	pos     token.Pos
	literal bool
}

// bounding are the numbers of one node that may bound something.
func bounding(n ast.Node) map[string]bound {
	found := map[string]bound{}
	literals := func(all ...ast.Expr) {
		for _, e := range all {
			if e == nil {
				continue
			}
			ast.Inspect(e, func(n ast.Node) bool {
				if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.INT && l.Value != "0" && l.Value != "1" {
					found[l.Value] = bound{l.Pos(), true}
				}
				if x, ok := n.(*ast.BinaryExpr); ok && (x.Op == token.QUO || x.Op == token.REM || x.Op == token.SHR) {
					return false // A part of something that is bounded elsewhere.
				}
				_, nested := n.(*ast.CallExpr)
				return !nested
			})
		}
	}
	switch x := n.(type) {
	case *ast.GenDecl:
		if x.Tok == token.CONST && !counted(x) {
			for _, s := range x.Specs {
				v := s.(*ast.ValueSpec)
				for i, name := range v.Names {
					if numeric(v.Values[i]) && name.Name != "_" {
						found[name.Name] = bound{name.Pos(), false}
					}
				}
			}
		}
	case *ast.BinaryExpr:
		switch x.Op {
		case token.LSS, token.LEQ, token.GTR, token.GEQ, token.EQL, token.NEQ:
			literals(x.X, x.Y)
		}
	case *ast.RangeStmt:
		literals(x.X)
	case *ast.CallExpr:
		switch types.ExprString(x.Fun) {
		case "min", "max":
			literals(x.Args...)
		}
	}
	return found
}

// counted says whether constants are an enumeration.
func counted(d *ast.GenDecl) (is bool) {
	ast.Inspect(d, func(n ast.Node) bool {
		i, ok := n.(*ast.Ident)
		is = is || ok && i.Name == "iota"
		return true
	})
	return is
}

// numeric says whether a constant is a number.
func numeric(e ast.Expr) bool {
	l, ok := e.(*ast.BasicLit)
	return !ok || l.Kind == token.INT
}

// Each field of Tuning has a default, and counts that are too large are refused by name.
func TestTuning(t *testing.T) {
	var d Tuning
	if err := d.fill(); err != nil {
		t.Fatal(err)
	}
	want := Tuning{
		SettleMax: 64, SweepRows: 256, AttemptsMax: 3, TellsMax: 10, NotifyMax: 5, RenewsMax: 512,
		LeftoversMax: 12, PlainsMax: 16, BreakersPerPeer: 4, ProvenPeerBonus: 60 * effects.Second,
	}
	if d != want {
		t.Errorf("defaults are %+v, want %+v", d, want)
	}
	large := Tuning{SettleMax: tuningMax + 1}
	if err := large.fill(); err == nil || !strings.Contains(err.Error(), "Tuning.SettleMax is 65537: give at most 65536") {
		t.Errorf("too large a count is answered with %v", err)
	}
}
