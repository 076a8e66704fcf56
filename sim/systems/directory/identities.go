package directory

import (
	"slices"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/protocol/sharedlog"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/custom"
)

// In some plans workers prove identities to the directories, and a further process, the impostor, claims to be other
// workers. A plan has an item for each: plans that are older than the items have none.
const (
	identitiesItem = "identities"
	impostorItem   = "impostor"
)

// mayImpersonate reports whether the world of a plan has an impostor.
func mayImpersonate(p *plan.Plan) bool {
	return (p.System == systemName && !mayFlood(p) && !hasLongPrompt(p) || p.System == replicasName) &&
		draw.Hash(p.Seed, draw.Plan, 8, 110).ChancePermille(250)
}

func hasItem(p *plan.Plan, do string) bool {
	return slices.ContainsFunc(p.Items, func(x plan.Item) bool { return x.Do == do })
}

// neverProves is more incarnations than any process has.
const neverProves = 1 << 30

// provesFrom returns the first incarnation in which the processes of an instance prove their identity. Processes that are
// given an identity late are known to directories without one until then.
func provesFrom(p *plan.Plan, instance string) uint32 {
	if !mayImpersonate(p) || !hasItem(p, identitiesItem) {
		return neverProves
	}
	d := draw.Hash(p.Seed, draw.Plan, 8, 112+uint64(instance[0]))
	switch n := d.Below(100); {
	case n < 65 && instance != workers[len(workers)-1].id.instance, n < 30:
		return 0
	case n < 85:
		return 1
	}
	return neverProves
}

// isMixed reports whether processes of an instance may prove an identity while others of the instance do not. A directory
// may then refuse the others until they have been started again.
func isMixed(p *plan.Plan, instance string) bool { return provesFrom(p, instance) == 1 }

// mayBeTaken reports whether the impostor of a plan may take the place of a worker, because the worker has not proved an
// identity from its start on. What the impostor then reports may stay.
func mayBeTaken(p *plan.Plan, instance string) bool {
	return mayImpersonate(p) && hasItem(p, impostorItem) && provesFrom(p, instance) > 0
}

// The principals of workers: one of all workers, or one of each instance. That of the impostor is another one.
const (
	workersPrincipal  = 100
	impostorPrincipal = 999
)

func principalOf(p *plan.Plan, instance string) effects.Principal {
	if draw.Hash(p.Seed, draw.Plan, 8, 111).ChancePermille(300) {
		return workersPrincipal
	}
	return workersPrincipal + effects.Principal(instance[0])
}

// identityOf returns the function by which a worker's process proves its identity.
func identityOf(id workerID) func(b custom.Boot) (effects.Principal, effects.Roles) {
	return func(b custom.Boot) (effects.Principal, effects.Roles) {
		if b.Incarnation < provesFrom(b.Plan, id.instance) {
			return 0, 0
		}
		return principalOf(b.Plan, id.instance), []effects.Roles{effects.RolePrefill, effects.RoleDecode}[id.rank%2]
	}
}

// impostorIdentity returns what the impostor of a plan proves: an identity of its own, with a role for the channels of
// directories or without, or nothing.
func impostorIdentity(b custom.Boot) (effects.Principal, effects.Roles) {
	switch n := draw.Hash(b.Plan.Seed, draw.Plan, 8, 109).Below(10); {
	case n < 7:
		return impostorPrincipal, effects.RoleDecode | effects.RoleOperator
	case n < 8:
		return impostorPrincipal, effects.AllRoles &^ (effects.RolePrefill | effects.RoleDecode)
	}
	return 0, 0
}

// lacksRole reports whether the client of a message proved an identity without a role for the channel.
func lacksRole(e *effects.Received) bool {
	return e.Principal != 0 && e.Roles&(effects.RolePrefill|effects.RoleDecode) == 0
}

// impostorGone is the time from the end of an impostor until directories have dropped the workers that belong to it.
const impostorGone = 3 * time.Second

// drawImpostor draws from when to when the impostor acts. It ends before the faults do, so that the directories know the
// truth some time after that.
func drawImpostor(d custom.Draws, p *plan.Plan, node plan.Node) {
	const what = "impostor"
	at := time.Duration(0)
	if d.NumberBelow(what, 0, 3) > 0 {
		at = d.Duration(what, 1, 0, p.FaultsEnd/2)
	}
	p.Items = append(p.Items, plan.Item{At: at, Do: impostorItem, Node: node, Span: p.FaultsEnd - at})
	if d.NumberBelow(what, 2, 8) > 0 {
		p.Items = append(p.Items, plan.Item{Do: identitiesItem, Node: node})
	}
	p.FaultsEnd += impostorGone
}

// makesNames reports whether the impostor of a plan may make workers known. If directories drop no silent worker, then
// what the impostor has made known first would stay.
func makesNames(p *plan.Plan) bool { return !ignoresSilence(p) && !hasItem(p, "heartbeaters only") }

// isFromImpostor reports whether an origin is the node of the impostor, which is the last node of a plan that has one.
func isFromImpostor(c *oracle.Call, o effects.Origin) bool {
	p := planOf(c)
	directories := len(replicaNames) + 1
	if p.System == systemName {
		directories = len(directoryNames(p))
	}
	return mayImpersonate(p) && int(o)-1 == directories+len(workers)
}

// unwrapFrame returns the frame that a frame of a log entry contains, and the principal of its worker; a frame that states
// no principal contains itself.
func unwrapFrame(kind sharedlog.FrameKind, body []byte) (sharedlog.FrameKind, []byte, effects.Principal) {
	var x sharedlog.Proven
	if kind == sharedlog.FrameProven && x.Decode(body) == nil {
		return x.Kind, x.Body, effects.Principal(x.Principal)
	}
	return kind, body, 0
}

// refusalIn returns the code with which a step of a directory refused its message, or OK.
func refusalIn(out *effects.Effects) effects.Code {
	for i := range out.Len() {
		if e, ok := out.At(i).(*effects.Observe); ok && e.Fact == effects.FactMalformed {
			return e.Code
		}
	}
	return effects.OK
}

// guessedIncarnation returns the incarnation that the nth process of a worker states, which the impostor has overheard.
func guessedIncarnation(p *plan.Plan, node int, w workerID, nth int) protocol.UUID {
	return w.incarnationOf(custom.Boot{Seed: processSeed(p, node, nth)})
}

// processSeed returns the seed of the nth process of a node.
func processSeed(p *plan.Plan, node, nth int) uint64 {
	return uint64(draw.Hash(p.Seed, draw.Identity, uint64(node), uint64(nth)))
}
