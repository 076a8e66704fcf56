package gateway

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/custom"
)

// This file draws the plan of a seed, and says what must succeed in it.

// isCalm reports whether nothing goes wrong in a run, so that all transfers must succeed.
func isCalm(p *plan.Plan) bool {
	if w := worldOf(p); w != nil {
		return w.Faults == 0
	}
	return len(p.Faults) == 0 && len(p.Strikes) == 0 && !slices.ContainsFunc(slices.Collect(maps.Values(p.Rates)),
		func(n int) bool { return n > 0 }) && !slices.ContainsFunc(p.Items, func(x plan.Item) bool {
		return slices.Contains([]string{"odd", "leave", "stray", "forget", "refuse", "unlink", "flaky", "astray", "restart", "mute"}, x.Do)
	})
}

// mustSucceed reports whether nothing can go wrong with a request of a plan: both ends get their commands at about the
// same time, in a run without faults or long after the faults.
func mustSucceed(p *plan.Plan, number uint32, do, other string) bool {
	if isRival(number) {
		return false
	}
	find := func(do string, number uint32) (at time.Duration, once bool) {
		n := 0
		for _, x := range p.Items {
			if x.Do == do && x.Number == number && x.Node == placeOfItem(do, number) {
				at = x.At
				n++
			}
		}
		return at, n == 1
	}
	engine := producerOf(number)
	isUnlinked := slices.ContainsFunc(p.Items, func(x plan.Item) bool {
		return x.Do == "unlink" && x.Number == unlinkAll && x.At >= p.FaultsEnd+lateUnlink
	})
	isCrowded := len(producers)+countStrays(p) > enginesMax(p)
	if do == "receive" && isCrowded && !isUnlinked {
		return false // Producers that the rank is connected to keep their places.
	}
	if do == "lend" || do == "want" {
		engine = consumerOf(number)
	}
	if s := shapeOf(p); !s.isServed(engine) || slices.ContainsFunc(p.Items, func(x plan.Item) bool {
		return x.Do == "leave" && x.Node == engineNode(engine)
	}) {
		return false
	}
	a, is := find(do, number)
	b, also := find(other, number)
	if !is || !also || (a-b).Abs() > pairedWithin && !isKept(p, number, find) {
		return false
	}
	if isCalm(p) {
		return true
	}
	// What was registered before the probes is over, and its agents are gone: otherwise a probe is refused for want of room.
	isOver := func(probe time.Duration) bool {
		return do != "receive" || !slices.ContainsFunc(p.Items, func(x plan.Item) bool {
			return x.Do == "receive" && x.Number < firstProbe && x.At > probe-overWithin
		})
	}
	if do == "receive" && number >= firstProbe && number < secondProbe && isUnlinked && !isCrowded {
		return min(a, b) >= p.FaultsEnd+convergeTime && isOver(min(a, b))
	}
	before, first := find(do, number-secondProbe+firstProbe)
	alike, too := find(other, number-secondProbe+firstProbe)
	return number >= secondProbe && first && too && min(before, alike) >= p.FaultsEnd+convergeTime && isOver(min(before, alike)) &&
		min(a, b) >= max(before, alike)+convergeTime
}

// lateUnlink is the time after the faults at which the rank loses all links to producers in many runs. Then it says hello
// before it registers anything, so that the first requests that begin afterwards succeed, and its connections to producers
// that do not exist are closed.
const lateUnlink = probesBegin - time.Second

// probesBegin is the time after the faults at which the first of the requests begin that must succeed.
const probesBegin = convergeTime + 5*time.Second

// placeOfItem returns the node at which an item of a request makes sense.
func placeOfItem(do string, number uint32) plan.Node {
	switch do {
	case "compute":
		return engineNode(producerOf(number))
	case "want", "foresee":
		return engineNode(consumerOf(number))
	default:
		return hostNode
	}
}

// overWithin is the longest time from a registration to the end of the agent that it used: it expires, its lease ends, and
// the agent is destroyed.
const overWithin = 10 * time.Second

// enginesMax returns the limit on producers and on consumers.
func enginesMax(p *plan.Plan) int {
	if isCalm(p) {
		return requestsMax
	}
	return drawOf(p.Seed, 1).Between(2, 4)
}

// registrationsMax returns the limit on registrations with producers that are open.
func registrationsMax(p *plan.Plan) int {
	if isCalm(p) { // Otherwise what is refused for want of room would excuse every failure.
		return ranksLimit * requestsMax
	}
	s := shapeOf(p)
	return drawOf(p.Seed, 3).Between(2, 8) + s.moreRanks(producers)
}

// countStrays returns the number of side channels of engines that do not exist and that the rank may be connected to.
func countStrays(p *plan.Plan) int {
	ports := map[uint16]bool{}
	for i := range p.Items {
		if x := &p.Items[i]; x.Do == "stray" {
			ports[strayPort(x.Number)] = true
		}
	}
	return len(ports)
}

// Requests that name engines which do not exist have as many side channels, and either register or are expected.
const (
	strayPorts = 6
	strayKinds = 2 * strayPorts
)

// strayPort returns the side channel of a request that names an engine which does not exist.
func strayPort(number uint32) uint16 { return uint16(2 + number%strayPorts) }

// isKept reports whether heartbeats keep a request at its producer from before it is finished until it is registered,
// which is later than the producer's lease.
func isKept(p *plan.Plan, number uint32, find func(do string, number uint32) (time.Duration, bool)) bool {
	for _, x := range [][3]string{{"expect", "compute", "receive"}, {"foresee", "lend", "want"}} {
		kept, is := find(x[0], number)
		finished, also := find(x[1], number)
		registered, too := find(x[2], number)
		if is && also && too && kept <= finished+pairedWithin && finished <= registered && registered <= kept+keptFor {
			return true
		}
	}
	return false
}

// keptFor is how long heartbeats keep a request that is registered late. It is longer than a producer's lease.
const keptFor = 10 * time.Second

// pairedWithin is the longest time between the commands at both ends of a request.
const pairedWithin = 1500 * time.Millisecond

// drawPlan draws the requests: for each the commands at both of its ends, in either order. A quarter of the runs has no
// faults.
func drawPlan(d custom.Draws, p *plan.Plan) {
	if d.NumberBelow("calm", 0, 4) == 0 {
		p.Faults, p.Strikes = nil, nil
		clear(p.Rates)
	}
	drawShape(d, p)
	last := p.FaultsEnd
	at := func(nth uint64, from time.Duration) time.Duration {
		return from + d.Duration("wait", nth, time.Millisecond, pairedWithin)
	}
	request := func(nth uint64, number uint32, begin time.Duration, plain bool) {
		keep, finish, register := "foresee", "lend", "want"
		keeper, source, target := firstConsumer+plan.Node(number%2), hostNode, firstConsumer+plan.Node(number%2)
		if plain {
			keep, finish, register = "expect", "compute", "receive"
			keeper, source, target = hostNode, firstProducer+plan.Node(number%2), hostNode
		}
		first, second := at(2*nth, begin), at(2*nth+1, begin)
		if d.NumberBelow("kept", nth, 3) == 0 { // It is registered when the producer's lease would be over.
			p.Items = append(p.Items, plan.Item{At: begin, Do: keep, Node: keeper, Number: number})
			second = begin + keptFor - 500*time.Millisecond
		}
		p.Items = append(p.Items, plan.Item{At: first, Do: finish, Node: source, Number: number},
			plan.Item{At: second, Do: register, Node: target, Number: number})
	}
	for i := range uint32(2 + d.NumberBelow("requests", 0, requestsMax-1)) {
		request(uint64(i), i, d.Duration("begin", uint64(i), time.Millisecond, max(2*time.Millisecond, last)), true)
	}
	for i := range uint32(2 + d.NumberBelow("requests", 1, 3)) {
		request(100+uint64(i), i, d.Duration("begin", 100+uint64(i), time.Millisecond, max(2*time.Millisecond, last)), false)
	}
	if d.NumberBelow("third", 0, 2) == 0 {
		for i := range 1 + d.NumberBelow("third", 1, 3) {
			number, begin := uint32(firstOfThird+i), d.Duration("third", i, time.Millisecond, max(2*time.Millisecond, last))
			p.Items = append(p.Items, plan.Item{At: at(500+2*i, begin), Do: "lend", Node: hostNode, Number: number},
				plan.Item{At: at(501+2*i, begin), Do: "want", Node: thirdNode, Number: number})
		}
	}
	drawRivals(d, p)
	if d.NumberBelow("forge", 0, 2) == 0 { // Even without faults.
		p.Items = append(p.Items, d.Items("forge", 1, 6, stranger)...)
	}
	if len(p.Faults) > 0 || len(p.Rates) > 0 {
		p.Items = append(p.Items, d.Items("abort", 0, 4, hostName)...)
		p.Items = append(p.Items, d.Items("cancel", 0, 2, hostName)...)
		if d.NumberBelow("flood", 0, 2) == 0 {
			floods := d.Items("flood", 1, 3, stranger)
			p.Items = append(p.Items, floods...)
			for i, x := range floods { // Another one comes while the agents of the first are being destroyed.
				x.At += d.Duration("flood", uint64(i), 200*time.Millisecond, 1500*time.Millisecond)
				p.Items = append(p.Items, x)
			}
		}
		if d.NumberBelow("odd", 0, 2) == 0 {
			drawOddities(d, p)
		}
		drawTroubles(d, p)
		if d.NumberBelow("lossy", 0, 2) == 0 {
			p.Rates[plan.FaultReplyLost] = 10 + int(d.NumberBelow("lossy", 1, 200))
			p.Rates[plan.FaultMessageDelayed] = 10 + int(d.NumberBelow("lossy", 2, 300))
		}
	}
	if !isCalm(p) && (countStrays(p) > 0 || d.NumberBelow("unlink", 1, 2) == 0) {
		p.Items = append(p.Items, plan.Item{At: last + lateUnlink, Do: "unlink", Node: hostNode, Number: unlinkAll})
	}
	for _, after := range []time.Duration{0, convergeTime / 2} { // A node that crashed last has restarted by then.
		p.Items = append(p.Items, plan.Item{At: last + after, Do: "heal", Node: hostNode})
	}
	for i := range uint32(4) { // What begins after the faults succeeds at the second attempt.
		number, begin := firstProbe+i%2, last+probesBegin+time.Duration(i)*100*time.Millisecond
		if i >= 2 {
			number, begin = secondProbe+i%2, begin+2*convergeTime
		}
		request(1000+uint64(i), number, begin, true)
		request(1100+uint64(i), number, begin, false)
		if i >= 2 && d.NumberBelow("lose", uint64(i), 2) == 0 { // Even without faults.
			p.Items = append(p.Items, plan.Item{At: begin - d.Duration("lose", uint64(i), 0, time.Second), Do: "lose", Node: hostNode,
				Number: i})
		}
	}
	slices.SortStableFunc(p.Items, func(a, b plan.Item) int { return cmp.Compare(a.At, b.At) })
}

// drawRivals draws requests of which two consumers register one of the same name, before the node has finished one. The
// router has sent such a request to a second consumer, or to two requests of one name.
func drawRivals(d custom.Draws, p *plan.Plan) {
	if d.NumberBelow("rival", 0, 3) != 0 {
		return
	}
	for i := range 1 + d.NumberBelow("rival", 1, 2) {
		begin := d.Duration("rival", 4*i, time.Millisecond, max(2*time.Millisecond, p.FaultsEnd))
		for j := range uint64(2) {
			p.Items = append(p.Items, plan.Item{At: begin + d.Duration("rival", 4*i+1+j, 0, pairedWithin/2), Do: "want",
				Node: firstConsumer + plan.Node(j), Number: uint32(firstRival + 2*i + j)})
		}
		p.Items = append(p.Items, plan.Item{At: begin + d.Duration("rival", 4*i+3, pairedWithin/2, 2*pairedWithin), Do: "lend",
			Node: hostNode, Number: uint32(firstRival + 2*i)})
	}
}

// drawTroubles draws what makes the rank say hello to a producer again, what fails on the way to a plain engine, and how
// the rank forgets peers and refuses them.
func drawTroubles(d custom.Draws, p *plan.Plan) {
	if d.NumberBelow("restart", 0, 2) == 0 {
		restarts := d.Items("restart", 1, 3, slices.Concat(producers, consumers)...)
		p.Items = append(p.Items, restarts...)
		for i, x := range restarts {
			if x.Node >= firstConsumer {
				continue
			}
			// The rank says hello again, and registers: the first request after the restart.
			number := firstRenewed + uint32(2*i) + uint32(x.Node-firstProducer)
			after := d.Duration("renewed", 3*uint64(i), time.Millisecond, 500*time.Millisecond)
			former := max(0, x.At-d.Duration("former", uint64(i), time.Millisecond, 800*time.Millisecond))
			p.Items = append(p.Items, plan.Item{At: former, Do: "receive", Node: hostNode, Number: number - firstRenewed + firstFormer},
				plan.Item{At: x.At + after, Do: "unlink", Node: hostNode, Number: unlinkAll},
				plan.Item{At: x.At + after + d.Duration("renewed", 3*uint64(i)+1, 0, 300*time.Millisecond), Do: "receive",
					Node: hostNode, Number: number},
				plan.Item{At: x.At + after + d.Duration("renewed", 3*uint64(i)+2, 0, time.Second), Do: "compute", Node: x.Node,
					Number: number})
		}
	}
	if d.NumberBelow("unlink", 0, 2) == 0 {
		p.Items = append(p.Items, d.Items("unlink", 1, 5, hostName)...) // Their numbers are below unlinkAll.
	}
	if d.NumberBelow("mute", 0, 3) == 0 {
		mute := d.Items("mute", 1, 2, slices.Concat(producers, consumers)...)
		for i := range mute {
			mute[i].Span = d.Duration("mute", uint64(i), 100*time.Millisecond, 2*time.Second)
		}
		p.Items = append(p.Items, mute...)
	}
	drawBurst(d, p)
	drawDropped(d, p)
	drawCrowd(d, p)
	if d.NumberBelow("flaky", 0, 2) == 0 {
		flaky := d.Items("flaky", 1, 2, hostName)
		for i := range flaky {
			flaky[i].Span = d.Duration("flaky", uint64(i), 100*time.Millisecond, 2*time.Second)
		}
		p.Items = append(p.Items, flaky...)
	}
	if d.NumberBelow("refuse", 0, 2) == 0 {
		refuse := d.Items("refuse", 1, 2, hostName)
		for i := range refuse {
			refuse[i].Span = d.Duration("refuse", uint64(i), 500*time.Millisecond, 4*time.Second)
		}
		p.Items = append(p.Items, refuse...)
	}
	if d.NumberBelow("astray", 0, 3) == 0 {
		p.Items = append(p.Items, d.Items("astray", 1, 3, hostName)...)
	}
}

// drawDropped draws requests of which more end than results are kept, while the rank has no connection: as many of a
// producer as may be open, and one of the other. When the rank is connected again, it asks for results that were dropped.
func drawDropped(d custom.Draws, p *plan.Plan) {
	s, n, first := shapeOf(p), registrationsMax(p), uint32(d.NumberBelow("dropped", 1, 2))
	if d.NumberBelow("dropped", 0, 2) != 0 || n > 5 || s.moreRanks(producers) > 0 {
		return
	}
	begin := p.FaultsEnd + d.Duration("dropped", 2, 0, 5*time.Second) // Later on nothing else is registered.
	cut := func(producer uint32, at time.Duration) {                  // The rank loses the producer, which has computed everything.
		p.Items = append(p.Items,
			plan.Item{At: at, Do: "mute", Node: firstProducer + plan.Node(producer), Span: 1300 * time.Millisecond},
			plan.Item{At: at, Do: "unlink", Node: hostNode, Number: unlinkAll})
	}
	request := func(number uint32, at, computed time.Duration) {
		p.Items = append(p.Items, plan.Item{At: at, Do: "receive", Node: hostNode, Number: number},
			plan.Item{At: computed, Do: "compute", Node: firstProducer + plan.Node(number%2), Number: number})
	}
	made := 60 * time.Millisecond // The time in which an agent is made and loaded.
	if areAgentsSlow(p) {
		made = 800 * time.Millisecond
	}
	at := begin + made + d.Duration("dropped", 3, 0, 100*time.Millisecond)
	cut(first, at)
	for i := range uint32(n) {
		request(firstDropped+2*i+first, begin, at+time.Millisecond)
	}
	other := at + made + d.Duration("dropped", 6, 0, 100*time.Millisecond)
	request(firstDropped+1-first, at+time.Millisecond, other+time.Millisecond)
	cut(1-first, other)
}

// drawCrowd draws more producers than there are places for. Those that exist have written a request each, the rank has lost
// its link to the last rank of each, and opens connections to others.
func drawCrowd(d custom.Draws, p *plan.Plan) {
	oneIn := uint64(4)
	if s := shapeOf(p); s.moreRanks(producers) > 0 && s.ranksMax > 1 {
		oneIn = 2
	}
	if d.NumberBelow("crowd", 0, oneIn) != 0 {
		return
	}
	at := d.Duration("crowd", 0, p.FaultsEnd/2, p.FaultsEnd+2*time.Second)
	for i := range uint32(len(producers)) {
		p.Items = append(p.Items, plan.Item{At: at, Do: "receive", Node: hostNode, Number: firstCrowded + i},
			plan.Item{At: at, Do: "compute", Node: firstProducer + plan.Node(i), Number: firstCrowded + i})
	}
	at += d.Duration("crowd", 1, 200*time.Millisecond, 1500*time.Millisecond)
	p.Items = append(p.Items, plan.Item{At: at, Do: "unlink", Node: hostNode, Number: unlinkLatest})
	for i := range uint64(strayPorts - 1) {
		at += d.Duration("crowd", 2+i, time.Millisecond, 200*time.Millisecond)
		p.Items = append(p.Items, plan.Item{At: at, Do: "stray", Node: hostNode, Number: uint32(strayKinds*(1+i) + i)})
	}
}

// drawBurst draws requests of one producer that are registered within a short time. Notifications fail while the last of
// them is sent, and the others end as if nothing had happened.
func drawBurst(d custom.Draws, p *plan.Plan) {
	if d.NumberBelow("burst", 0, 2) != 0 {
		return
	}
	producer := uint32(d.NumberBelow("burst", 1, 2))
	begin := d.Duration("burst", 2, 0, p.FaultsEnd)
	at := func(nth uint64, from, to time.Duration) time.Duration {
		return begin + d.Duration("burst", 10+nth, from, to)
	}
	const ready = 900 * time.Millisecond // The agents that the requests need have been made by then, even slow ones.
	for i := range uint32(3) {
		number, registered := firstBurst+2*i+producer, at(uint64(i), 0, 100*time.Millisecond)
		if i == 2 {
			registered = at(2, ready, ready+200*time.Millisecond)
		}
		p.Items = append(p.Items, plan.Item{At: registered, Do: "receive", Node: hostNode, Number: number},
			plan.Item{At: at(10+uint64(i), ready, 2*ready), Do: "compute", Node: firstProducer + plan.Node(producer), Number: number})
	}
	p.Items = append(p.Items, plan.Item{At: begin + ready, Do: "flaky", Node: hostNode, Span: 200 * time.Millisecond,
		Number: uint32(d.NumberBelow("burst", 3, uint64(flakinessCount)))})
}

// drawOddities draws plain engines that do not behave, one that leaves for good, and requests that name engines which do
// not exist.
func drawOddities(d custom.Draws, p *plan.Plan) {
	engines := slices.Concat(producers, consumers)
	odd := d.Items("odd", 1, 4, engines...)
	for i := range odd {
		odd[i].Span = d.Duration("odd", uint64(i), 500*time.Millisecond, 4*time.Second)
	}
	p.Items = append(p.Items, odd...)
	forget := d.Items("forget", 0, 2, hostName)
	for i := range forget {
		forget[i].Span = d.Duration("forget", uint64(i), 300*time.Millisecond, 3*time.Second)
	}
	p.Items = append(p.Items, forget...)
	if d.NumberBelow("leave", 0, 4) == 0 {
		p.Items = append(p.Items, d.Items("leave", 1, 1, engines...)...)
	}
	if d.NumberBelow("stray", 0, 2) == 0 {
		p.Items = append(p.Items, d.Items("stray", 1, 6, hostName)...)
	}
}
