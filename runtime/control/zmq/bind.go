package zmq

import (
	"context"
	"net"
	"net/netip"
	"strconv"

	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/internal/zeromq"
)

// bindServer listens for a server. The result is the server with the port that was bound; the host stays the configured
// name, because that is what peers are given.
func (t *transport) bindServer(s control.Server) (net.Listener, control.Server, error) {
	what := zeromq.DescribeServer(s)
	if !zeromq.SupportsChannel(s.Channel) {
		return nil, s, zeromq.UnknownChannelError(what)
	}
	ctx, cancel := context.WithTimeout(context.Background(), t.config.ConnectTimeout)
	defer cancel()
	host, err := zeromq.ResolveBindHost(ctx, t.names, s.Addr.Host, t.config.IPv6)
	if err != nil {
		return nil, s, zeromq.BindError(what, err)
	}
	network := "tcp"
	if at, err := netip.ParseAddr(host); !t.config.IPv6 && (err != nil || at.Is4()) {
		network = "tcp4"
	}
	l, err := net.Listen(network, net.JoinHostPort(host, strconv.Itoa(int(s.Addr.Port))))
	if err != nil {
		return nil, s, zeromq.BindError(what, err)
	}
	s.Addr.Port = uint16(l.Addr().(*net.TCPAddr).Port)
	return l, s, nil
}
