package register

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/protocol"
)

var keyed = regexp.MustCompile(`\b(register|limits|tables|link)\.[a-z_]+|\bpd_[a-z_]+`)

// Whatever is refused names a field and what helps, but where a peer says that itself; and each key that is named is
// one of the configuration's.
func TestRefusalsHelp(t *testing.T) {
	documented, err := os.ReadFile("../../../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	set, whys := token.NewFileSet(), 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING {
				for _, key := range keyed.FindAllString(s.Value, -1) {
					if !strings.Contains(string(documented), "`"+key+"`") {
						t.Errorf("%v: there is no key %s", set.Position(n.Pos()), key)
					}
				}
			}
			x, ok := n.(*ast.CompositeLit)
			if !ok || len(x.Elts) == 0 {
				return true
			}
			if is, ok := x.Type.(*ast.SelectorExpr); !ok || is.Sel.Name != "Why" {
				return true
			}
			has := map[string]bool{}
			for _, e := range x.Elts {
				has[e.(*ast.KeyValueExpr).Key.(*ast.Ident).Name] = true
			}
			if whys++; !has["Remedy"] && !has["Said"] || !has["Field"] && (has["Ours"] || has["Theirs"]) {
				t.Errorf("%v: a refusal without what helps", set.Position(n.Pos()))
			}
			return true
		})
	}
	if whys < 30 {
		t.Errorf("%d refusals were looked at", whys)
	}
}

// What the caches of two ranks are refused for is called as their files have it.
func TestUnpairedNamesKeys(t *testing.T) {
	for _, c := range []struct {
		err   error
		code  effects.Code
		field string
	}{
		{&geometry.Error{Code: geometry.Mismatch, Side: "producer", Field: "heads", Value: "2"}, effects.Mismatch,
			"producer's register.kv_heads"},
		{&geometry.Error{Code: geometry.Unsupported, Side: "consumer", Field: "stages"}, effects.Unsupported,
			"consumer's register.pp_size"},
		{&geometry.Error{Code: geometry.Unusable, Field: "per_logical"}, effects.Mismatch, "register.blocks_per_logical"},
		{&geometry.Error{Code: geometry.BadBlocks, Field: "blocks of group 0"}, effects.Invalid, "blocks of group 0"},
		{&geometry.Error{Code: geometry.Uncovered, Field: "layers"}, effects.NotFound, "register.layers"},
		{errors.New("another"), effects.Mismatch, "kvf_geometry"},
	} {
		if code, why := geometryReason(c.err); code != c.code || why.Field != c.field {
			t.Errorf("%v is %v of %q, want %v of %q", c.err, code, why.Field, c.code, c.field)
		}
	}
}

// A rank that leaves, and a request that will not come, are told in this system's words.
func TestEndedInOwnWords(t *testing.T) {
	for i := range effects.CodeCount {
		code := effects.Code(i)
		w := endReason(code)
		for _, other := range []string{"offer", "receiver"} {
			if strings.Contains(w.Text(code), other) && w.Remedy != "" {
				t.Errorf("%v: %q is of another system", code, w.Text(code))
			}
		}
	}
	for _, code := range []effects.Code{effects.Cancelled, effects.Expired, effects.Draining} {
		if w := endReason(code); w.Remedy == "" {
			t.Errorf("%v: nothing helps", code)
		}
	}
}

// Names that no word can have are refused with what was found and what was wanted, and a rank that leaves says so.
func TestNamesRefused(t *testing.T) {
	e := &flow.Env{Cfg: &flow.Config{Settings: flow.Settings{Wire: protocol.DefaultLimits()}}}
	for _, c := range []struct {
		request, transfer string
		timeout           effects.Duration
		field, text       string
	}{
		{"", "", 0, "Request", "0 bytes"},
		{"a,b", "", 0, "Request", "without a comma"},
		{"HB", "", 0, "Request", "neither PUSH_REG nor HB"},
		{"r", "t,u", 0, "Transfer", "t,u"},
		{strings.Repeat("r", e.Cfg.Wire.StringBytes+1), "", 0, "Request", "at most"},
		{"r", "t", -1, "Timeout", ""},
	} {
		code, why := checkNames(e, []byte(c.request), []byte(c.transfer), c.timeout)
		if code != effects.Invalid || why.Field != c.field || !strings.Contains(why.Text(code), c.text) {
			t.Errorf("%.20q, %q: %v %v", c.request, c.transfer, code, why)
		}
	}
	if code, _ := checkNames(e, []byte("r"), nil, 1); code != effects.OK {
		t.Errorf("a request called r is %v", code)
	}
	e.Draining = true
	if code, why := checkNames(e, []byte("r"), nil, 1); code != effects.Draining || why.Remedy == "" {
		t.Errorf("while it drains: %v, %v", code, why)
	}
}
