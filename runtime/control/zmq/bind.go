package zmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
)

// bind listens for one server, and returns it with the port that it got. What peers are told stays the name.
func (t *transport) bind(s control.Server) (net.Listener, control.Server, error) {
	what := fmt.Sprintf("serve channel %s at host %q port %d", s.Channel, s.Addr.Host, s.Addr.Port)
	if !serves(s.Channel) {
		return nil, s, &control.Error{Code: effects.Invalid, What: what,
			Remedy: "serve init, alloc, proxy, done, lookup, meta, query, directory, feed or heartbeat, or channel32 and up, " +
				"which are for machines of others"}
	}
	host, err := t.bindable(s.Addr.Host)
	if err != nil {
		return nil, s, bindError(what, err)
	}
	network := "tcp"
	if at, err := netip.ParseAddr(host); !t.config.IPv6 && (err != nil || at.Is4()) {
		network = "tcp4"
	}
	l, err := net.Listen(network, net.JoinHostPort(host, strconv.Itoa(int(s.Addr.Port))))
	if err != nil {
		return nil, s, bindError(what, err)
	}
	s.Addr.Port = uint16(l.Addr().(*net.TCPAddr).Port)
	return l, s, nil
}

var errHost = errors.New("no host")

// bindable is an address of this machine: host itself, the first of an interface or of a name; none for every
// interface.
func (t *transport) bindable(host string) (string, error) {
	if host == "" || host == "*" {
		return "", nil
	}
	if !isHost(host) {
		return "", errHost
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return host, nil
	}
	if i, err := net.InterfaceByName(host); err == nil {
		return t.addressOf(i)
	}
	ctx, cancel := context.WithTimeout(context.Background(), t.config.ConnectTimeout)
	defer cancel()
	found, err := t.names.Resolve(ctx, host, t.config.IPv6)
	if err != nil {
		return "", err
	}
	return found[0].String(), nil
}

func (t *transport) addressOf(i *net.Interface) (string, error) {
	addrs, err := i.Addrs()
	if err != nil {
		return "", fmt.Errorf("addresses of interface %s: %w", i.Name, err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && (t.config.IPv6 || n.IP.To4() != nil) {
			return n.IP.String(), nil
		}
	}
	return "", fmt.Errorf("interface %s has no address that can be bound", i.Name)
}

func outOfSockets(what string, err error) error {
	return &control.Error{Code: effects.TooMany, What: what, Cause: err,
		Remedy: "raise the limit of open files, or lower MaxConns"}
}

func bindError(what string, err error) error {
	e := &control.Error{Code: effects.Refused, What: what, Cause: err,
		Remedy: "give an IP address or a name of this node, the name of a network interface, or no host for every interface"}
	switch {
	case errors.Is(err, errHost):
		e.Code, e.Cause = effects.Invalid, nil
	case errors.Is(err, syscall.EADDRINUSE):
		e.Remedy = "choose another port, or end the process that holds this one"
	case errors.Is(err, syscall.EACCES):
		e.Remedy = "choose a port above 1023"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return outOfSockets(what, err)
	}
	return e
}
