package ledger

import (
	"cmp"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A node that could not reach the proxy, or was refused by the proxy, must try again within BackoffMax, however often
// that happened.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkProxyTried = oracle.NewCheck("L5", "tries to tell the proxy")
	checkProxyNext  = oracle.NewCheck("L5", "words to the proxy, one after the other")
)

// proxyOracle judges how long a machine waits before the next attempt to notify the proxy (L5).
type proxyOracle struct {
	judge
	perLife[proxyLife]
}

func (*proxyOracle) listen(l *oracle.Listen[proxyOracle]) {
	oracle.On(l, func(o *proxyOracle, c *oracle.Call, e *effects.Opened) { o.opened(o.node(c), e) })
	oracle.On(l, func(o *proxyOracle, _ *oracle.Call, e world.Opening) { o.connecting(e.Node, e.Conn) })
	oracle.On(l, func(o *proxyOracle, _ *oracle.Call, e pd.Notified) { o.told(e.Node, e.Message, e.Taken) })
	oracle.On(l, func(o *proxyOracle, _ *oracle.Call, e counted) { o.afterStep(e.node) })
}

// proxyLife records the notifications of an incarnation of a node to the proxy.
type proxyLife struct {
	conn    uint64    `snap:"skip"` // the newest connection to the proxy
	due     int64     `snap:"skip"` // when the machine must have tried again; 0: nothing failed
	frozen  int64     `snap:"skip"`
	ended   int64     `snap:"skip"` // when the newest notification, or try, was over
	stood   int64     `snap:"skip"` // how long the node had been frozen by then
	refused []refused `snap:"skip"`
}

// refused counts how often the notification for a request was refused.
type refused struct {
	request uint64
	times   uint32
}

func (s *proxyLife) startReply() { *s = proxyLife{refused: s.refused[:0]} }

// late bounds how much later than the oracle the machine may be notified of a failure.
const late = effects.Second

// connecting records that the machine tries again.
func (or *proxyOracle) connecting(n *world.Node, c *world.Conn) {
	if c.Channel == effects.ChannelProxy {
		my := or.at(n)
		my.conn, my.due = c.ID, 0
	}
}

// opened records that a connection could not be made, which may be the connection to the proxy.
func (or *proxyOracle) opened(n *world.Node, ev *effects.Opened) {
	if c := or.w.ConnOf(or.at(n).conn); ev.Code != effects.OK && c != nil && c.Closed && !c.Up && or.at(n).due == 0 {
		or.again(n)
	}
}

// again records that a notification or an attempt to connect failed, so that the machine must try again in time.
func (or *proxyOracle) again(n *world.Node) {
	my := or.at(n)
	my.ended, my.stood = or.w.Now, n.Frozen
	my.due, my.frozen = or.w.Now+int64(n.Slowest(pd.Its(n).Cfg.BackoffMax)+late+pd.Grace), n.Frozen
}

// told records the result of a notification. After the maximum number of refusals the node gives the notification up,
// and may have no further notification.
func (or *proxyOracle) told(n *world.Node, m *protocol.ProxyNotif, taken bool) {
	request, my := or.w.JobNamed(m.RequestID), or.at(n)
	or.waited(n, request)
	if my.due, my.ended, my.stood = 0, or.w.Now, n.Frozen; taken {
		return
	}
	at := len(my.refused)
	for i := range my.refused {
		if my.refused[i].request == request {
			at = i
		}
	}
	if at == len(my.refused) {
		my.refused = append(my.refused, refused{request: request})
	}
	if my.refused[at].times++; my.refused[at].times < cmp.Or(pd.Its(n).Cfg.Tuning.TellsMax, 10) {
		or.again(n)
	}
}

// afterStep checks that the machine has tried again in time.
func (or *proxyOracle) afterStep(n *world.Node) {
	my := or.at(n)
	if my.due == 0 {
		return
	}
	or.judged(checkProxyTried)
	if or.w.Now > my.due+n.Frozen-my.frozen {
		or.fail(checkProxyTried, "node %d has let the proxy be for longer than %d ns since it was refused there",
			n.It(), pd.Its(n).Cfg.BackoffMax)
	}
}

// waited checks that a notification waited only for the previous notification and for a connection.
func (or *proxyOracle) waited(n *world.Node, request uint64) {
	if request >= uint64(len(or.w.Jobs)) {
		return
	}
	j, my, since := &or.w.Jobs[request], or.at(n), int64(0)
	for i := range j.Batches {
		put := j.Batches[i].Put
		if put == 0 || !or.w.Commands[put-1].Over || or.w.Commands[put-1].Held || or.w.Commands[put-1].Life != n.Life {
			return // The machine may be notified later of an outcome that it did not cause.
		}
		since = max(since, or.w.Commands[put-1].Outcome)
	}
	or.judged(checkProxyNext)
	most := n.Slowest(pd.Its(n).Cfg.BackoffMax) + 2*late + pd.Grace
	if waits := or.w.Now - max(since, my.ended) - (n.Frozen - my.stood); my.ended > 0 && waits > int64(most) {
		or.fail(checkProxyNext, "node %d tells the proxy of request %q %d ns after it could have",
			n.It(), oracle.Request(j.Name), waits)
	}
}
