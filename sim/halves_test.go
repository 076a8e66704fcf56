package sim

import (
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// worldHalf are the files that run any machine. They become a package of their own.
var worldHalf = strings.Fields(`
	address arena carry claim clock control event facet fault fault_alone fault_net
	fault_plane fenced grant hooks journal leased live load loan node offload oracles plane queue read run scatter
	strike system tell world`)

// TestWorldKnowsNoMachine: what nodes, clocks, networks and planes are does not depend on which machine runs on them,
// nor on what its messages say.
func TestWorldKnowsNoMachine(t *testing.T) {
	const ours = "github.com/kvferry/kvferry/"
	may := []string{"contract", "effects", "identity", "sim/draw", "sim/oracle", "sim/plan"}
	for _, name := range worldHalf {
		f, err := parser.ParseFile(token.NewFileSet(), name+".go", nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			path, _ := strconv.Unquote(i.Path.Value)
			if room, ok := strings.CutPrefix(path, ours); ok && !slices.Contains(may, room) {
				t.Errorf("%s.go imports %s: what is PD's alone belongs in a file that is PD's", name, room)
			}
		}
	}
}
