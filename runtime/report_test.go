package runtime

import (
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory/registrar"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime/internal/postmortem"
)

// A machine's state is told without what would let anybody speak for it: its key, and what its names and tokens are
// but for their beginning.
func TestAMachineIsToldWithoutItsSecrets(t *testing.T) {
	key := identity.KeyFromSeed(77)
	layout := protocol.Layout{Format: protocol.FormatKV2LTD, Dtype: protocol.DtypeHalf,
		Shape: protocol.Shape{Dims: [4]uint32{2, 1, 4, 2}, N: 4}}
	finding := rank.DefaultConfig().Finding
	finding.Directory.Wire = protocol.DefaultLimits()
	finding.Directory.Worker = registrar.Worker{Instance: "i", IP: "127.0.0.1", Port: 1, URL: "h:1", Location: "l"}
	finding.Directory.Directories = []registrar.Directory{{
		RequestAddr: effects.Addr{Host: "d", Port: 1}, FeedAddr: effects.Addr{Host: "d", Port: 2},
	}}
	m, err := rank.New(rank.Config{
		Key: key, Role: rank.RoleBoth, Planes: []rank.Plane{{Name: "shm", Blob: []byte("\x02\x00\x00")}},
		Common: rank.Common{Layout: layout},
		Memory: rank.Memory{Pages: 4},
		Peers:  rank.Peers{LocalID: "me"},
		Sharing: rank.Sharing{
			Shares: true, LookupAddr: effects.Addr{Host: "h", Port: 3}, PeerDoneAddr: effects.Addr{Host: "h", Port: 4},
		},
		Finding: finding,
	}, 5, 1)
	if err != nil {
		t.Fatal(err)
	}
	trace := postmortem.NewTrace(8)
	trace.RecordEffect(&effects.Grant{ID: 9, Peer: key.PublicID(), Read: true})
	dir := t.TempDir()
	var out effects.Effects
	out.Import(effects.Import{Corr: 3, Peer: key.PublicID(), Plane: "shm", Blob: append([]byte{2, 0, 0}, key[:]...)})
	name, err := postmortem.WriteReport(dir, 4, time.Unix(1, 0), &postmortem.Failure{Node: m.Incarnation(), Message: "BUG: it is",
		Stack: postmortem.CallerStack(), Event: &effects.Tick{}, Effects: &out, Stats: m.Stats(), Machine: m, Trace: trace})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"Import"`, "TestAMachineIsTold", `"LocalID": "me"`, `"grant": 9`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is not in %.3000s", want, text)
		}
	}
	life := key.PublicID()
	w0, w1 := key.SecretNumbers(0)
	hexOf := hex.EncodeToString
	for _, secret := range []string{hexOf(key[:6]), hexOf(life[:6]), fmt.Sprint(w0), fmt.Sprint(w1)} {
		if strings.Contains(string(text), secret) {
			t.Errorf("the report has %q of the rank's secrets", secret)
		}
	}
	// Whoever knows the seeds of the hash tables can choose keys that collide.
	if seed := regexp.MustCompile(`(?i)"\w*(seed|secret)\w*": *\d+`).Find(text); seed != nil {
		t.Errorf("the report has %s", seed)
	}
	if strings.Contains(string(text), "0xc0") {
		t.Error("the stack has arguments")
	}
}
