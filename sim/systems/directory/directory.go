// Package directory is a directory and workers in a simulated world: who reports what they have and ask who has what,
// what seeds draw of it, and who judges the answers.
package directory

import (
	"time"

	"github.com/kvferry/kvferry/effects"
	core "github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/fsm/directory/serve"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/own"
)

const directoryName = "directory"

// workers are by the names of their nodes. Those of one instance are its ranks; p speaks as LMCache's do.
var workers = []struct {
	name string
	who  who
}{
	{"a0", who{instance: "a"}}, {"a1", who{instance: "a", rank: 1}}, {"b0", who{instance: "b"}},
	{"b1", who{instance: "b", rank: 1}}, {"c0", who{instance: "c"}}, {"p0", who{instance: "p", plain: true}},
}

// rests is how long after the last fault the directory knows what is so: what is down starts within 1.5 s, what was
// delayed comes within 1 s, what is not known by then is found by two heartbeats, and a sync that lost its end is
// given up and done anew, one after the other if there is but one place.
const rests = 5 * time.Second

// System is a directory with workers.
var System = own.System{
	Name:     "directory",
	About:    "no ranks: a directory, and workers that tell it what they have and ask who has what",
	Nodes:    nodes,
	Draw:     draws,
	Do:       map[string]func(plan.Item) effects.CommandBody{"admit": admits, "evict": evicts, "lookup": looks, "settled": settles},
	Oracles:  []oracle.Oracle{named, toldSo, converges},
	Facts:    []string{"settled"},
	Legible:  legible,
	Patience: rests + 2*time.Second,
	DriftPPM: 20_000,
}

func nodes(*plan.Plan) []own.Process {
	all := []own.Process{{
		Name: directoryName, Serves: lineChannels[:],
		New: func(b own.Boot) (effects.Machine, error) { return serve.New(setting(b)) },
	}}
	for _, x := range workers {
		all = append(all, own.Process{
			Name: x.name, New: func(b own.Boot) (effects.Machine, error) { return newWorker(x.who, b), nil },
		})
	}
	return all
}

// setting is how a plan's directory is configured: its bounds are small where they end work, and ample where they end
// knowledge.
func setting(b own.Boot) serve.Config {
	at := func(n uint64) draw.Of { return draw.Hash(b.Plan.Seed, draw.Plan, 8, n) }
	c := serve.Config{Directory: core.Default(), Wire: protocol.DefaultLimits()}
	c.Heartbeat = protocol.Endpoint(b.Addr(directoryName, effects.ChannelHeartbeat)).String()
	d := &c.Directory
	d.Seed = b.Seed
	d.Instances, d.Workers, d.OfOne, d.OfSource, d.Holders = 8, 16, 4, 4, 64
	d.Silence, d.Patience, d.Ends = silence, stuck, 16
	d.Syncs, d.Sweep = at(1).Between(1, 4), 1+at(2).Between(0, 40)
	return c
}

// How long a directory waits for word of a worker, and for a sync to go on.
const (
	silence = 1200 * effects.Millisecond
	stuck   = 500 * effects.Millisecond
)

// Chunks are of a few prompts, each with the chunks before it.
const (
	prompts  = 3
	ofPrompt = 5
)

// first are the first n chunks of a prompt.
func first(prompt uint32, n int) (all []uint64) {
	for k := range n {
		all = append(all, uint64(prompt)<<8|uint64(k)|1<<16)
	}
	return all
}

// An item's number says which prompt, and how much of it.
func admits(x plan.Item) effects.CommandBody {
	return &admit{first(x.Number%prompts, 1+int(x.Number/prompts)%ofPrompt)}
}

// evicts takes a prompt's tail, or now and then its first chunk.
func evicts(x plan.Item) effects.CommandBody {
	all := first(x.Number%prompts, ofPrompt)
	if x.Number >= 80 {
		return &evict{all[:1]}
	}
	return &evict{all[int(x.Number/prompts)%ofPrompt:]}
}

func looks(x plan.Item) effects.CommandBody { return &lookup{first(x.Number%prompts, ofPrompt)} }

func settles(x plan.Item) effects.CommandBody { return &settled{*looks(x).(*lookup)} }

// draws draws what workers do, and that each asks about each prompt after all has come to rest.
func draws(d own.Draws, p *plan.Plan) {
	var names []string
	for _, x := range workers {
		names = append(names, x.name)
	}
	p.Items = append(d.Items("admit", 10, 60, names...), d.Items("evict", 0, 30, names...)...)
	p.Items = append(p.Items, d.Items("lookup", 5, 60, names...)...)
	if d.Below("feed", 0, 2) == 0 {
		p.Rates[plan.FaultDoneLost] = 10 + int(d.Below("feed", 1, 290))
	}
	for i := range workers {
		for prompt := range uint32(prompts) {
			p.Items = append(p.Items, plan.Item{
				At: p.FaultsEnd + rests + time.Duration(1+prompt)*100*time.Millisecond, Do: "settled", Node: plan.Node(1 + i), Number: prompt,
			})
		}
	}
}

// legible says whether bytes are a message of workers or directories.
func legible(b []byte) bool {
	tag, err := protocol.PeekControllerTag(b, nil)
	if err != nil {
		return false
	}
	m := protocol.NewMessage(tag)
	return m != nil && m.Decode(b, nil) == nil
}
