package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/kvferry/kvferry/protocol"
)

// CompareDirectories returns the problems that prevent nodes and directories, or the directories among themselves,
// from working together. A problem or note about a node and a directory names the node's file; a problem about two
// directories names the file of the second directory. Notes are about settings that work differently because of a
// setting in another file.
//
// A node that reports chunks to no directory is compared only by its ports.
func CompareDirectories(nodes []*Config, directories []*Directory) (problems, notes []Problem) {
	if len(directories) == 0 {
		return nil, nil
	}
	for _, n := range nodes {
		c := directoryComparison{node: n}
		c.checkAddresses(directories)
		for _, d := range directories {
			c.checkPorts(d)
			if c.usesDirectory(d) {
				if clashOf(&n.Security, &d.Security) {
					c.addProblem(ownPath(securityModeKey), n.Security.Mode, clashRemedy, d.Name, d.Security.Mode)
				}
				c.checkHeartbeats(d)
				c.checkBatches(d)
			}
		}
		problems, notes = append(problems, c.problems...), append(notes, c.notes...)
	}
	for i, a := range directories {
		for _, b := range directories[i+1:] {
			problems = append(problems, compareDirectoryPair(a, b)...)
		}
	}
	return problems, notes
}

// A directoryComparison compares a node with directories.
type directoryComparison struct {
	node            *Config
	problems, notes []Problem
}

func (c *directoryComparison) addProblem(field string, value any, remedy string, args ...any) {
	c.problems = append(c.problems, Problem{Code: Disagree, File: c.node.Name, Field: field,
		Value: fmt.Sprint(value), Remedy: fmt.Sprintf(remedy, args...)})
}

func (c *directoryComparison) addNote(field string, value any, remedy string, args ...any) {
	c.notes = append(c.notes, Problem{Code: Note, File: c.node.Name, Field: field,
		Value: fmt.Sprint(value), Remedy: fmt.Sprintf(remedy, args...)})
}

// usesDirectory reports whether the node reports to this directory and sends lookups there, as far as the files show.
func (c *directoryComparison) usesDirectory(d *Directory) bool {
	for i := range c.node.Share.Feeds {
		if d.mayListenAt(c.node.Share.Feeds[i], pullPort) && d.mayListenAt(c.node.Share.Replies[i], replyPort) {
			return true
		}
	}
	return false
}

// checkAddresses reports a node that shares chunks but names none of the directories.
func (c *directoryComparison) checkAddresses(directories []*Directory) {
	s := &c.node.Share
	switch {
	case !s.Enabled:
		return // The node has nothing to report to a directory.
	case len(s.Feeds) == 0:
		c.addProblem(controllerKey, false, "the node shares chunks and would report to none of the directories here; set %s: "+
			"true, with %s and %s",
			controllerKey, pullURLKey, replyURLKey)
		return
	case slices.ContainsFunc(directories, c.usesDirectory):
		return
	}
	for i, feed := range s.Feeds {
		for _, d := range directories {
			feeds, replies := d.mayListenAt(feed, pullPort), d.mayListenAt(s.Replies[i], replyPort)
			switch {
			case feeds:
				c.addProblem(replyURLKey, s.Replies[i], "%s accepts lookups at %s; write that address", d.Name, d.formatAddrs(replyPort, feed.Host))
				return
			case replies:
				c.addProblem(pullURLKey, feed, "%s accepts reports at %s; write that address", d.Name, d.formatAddrs(pullPort, s.Replies[i].Host))
				return
			}
		}
	}
	d := directories[0]
	if s.Feeds[0].Port == d.Monitors[0].Pull && isLoopbackHost(d.Host) {
		c.addProblem(pullURLKey, s.Feeds[0], "%s listens only on %s, which no other host reaches; set its %s to %s, or to "+
			"0.0.0.0",
			d.Name, d.Host, controllerHostKey, s.Feeds[0].Host)
		return
	}
	c.addProblem(pullURLKey, s.Feeds[0], "no directory among the files listens there; %s accepts reports at %s and lookups "+
		"at %s",
		d.Name, d.formatAddrs(pullPort, s.Feeds[0].Host), d.formatAddrs(replyPort, s.Feeds[0].Host))
}

// checkPorts reports ports that the node and the directory both bind on one host, and a directory's port that the node
// uses as the port of the proxy.
func (c *directoryComparison) checkPorts(d *Directory) {
	for _, l := range c.node.boundPorts() {
		if as := d.boundPurpose(l.at, c.hostNames(d)); as != "" {
			c.addProblem(l.key, l.at.Port, "%s has this port on the same %s, as the %s port of %s; give one of them another", d.Name,
				l.owner, as, monitorPortsKey)
		}
	}
	if as := d.boundPurpose(c.node.Proxy, c.hostNames(d)); as != "" {
		c.addProblem("pd_proxy_port", c.node.Proxy.Port, "%s has this port on the same host, as the %s port of %s; notifications for "+
			"the proxy would go there", d.Name, as, monitorPortsKey)
	}
}

// hostNames returns the names of a directory's host, as far as the files have the names: the host that the directory
// binds, the advertised host, and, if the directory binds every interface, the host at which the node reaches the
// directory.
func (c *directoryComparison) hostNames(d *Directory) []string {
	hosts := d.hostNames()
	if d.Host == "" {
		for _, feed := range c.node.Share.Feeds {
			if d.mayListenAt(feed, pullPort) {
				hosts = append(hosts, feed.Host)
			}
		}
	}
	return hosts
}

// checkHeartbeats reports a node that sends heartbeats too rarely for a directory that drops silent workers. kvferry's
// nodes receive the timeout from the directory, and send heartbeats in time whatever their file says, unless the file
// declares the directory as LMCache's own controller.
func (c *directoryComparison) checkHeartbeats(d *Directory) {
	s, beat := &c.node.Share, time.Duration(c.node.Machine.Directory.HeartbeatEvery)
	within := d.WorkerTimeout / protocol.HeartbeatsPerTimeout
	switch {
	case s.Vanilla:
		c.addNote(ownPath(vanillaKey), true, "%s is a kvferry directory; without this setting the node reports only the "+
			"missed changes again, and sends heartbeats as often as the directory requests", d.Name)
		if d.WorkerTimeout == 0 {
			break
		}
		if d.hasHeartbeatPort() && beat > within {
			c.addProblem(heartbeatKey, beat, "%s drops a worker that is silent for %v, and would drop this node between "+
				"heartbeats; write %v or less, or make its %s longer", d.Name, d.WorkerTimeout, within, workerTimeoutKey)
		} else if !d.hasHeartbeatPort() && !d.OnlyHeartbeats {
			c.addProblem(ownPath(vanillaKey), true, "%s drops every worker that is silent for %v and has no port for "+
				"heartbeats, so it would drop this node while nothing changes; give %s a heartbeat port, or set its %s: auto",
				d.Name,
				d.WorkerTimeout, monitorPortsKey, healthCheckKey)
		}
	case d.WorkerTimeout > 0 && beat > within:
		c.addNote(heartbeatKey, beat, "the node sends a heartbeat every %v: %s drops a worker that is silent for %v", within,
			d.Name, d.WorkerTimeout)
	}
}

// checkBatches reports messages of the node that are too long for the directory.
func (c *directoryComparison) checkBatches(d *Directory) {
	own, limit := &c.node.Machine.Directory, int(d.Tables.BatchHashes)
	for _, b := range []struct {
		key  string
		size int
	}{{operationsKey, own.ReportOperations}, {syncBatchKey, own.SyncBatchSlots}} {
		if b.size > limit {
			c.addProblem(b.key, b.size, "%s accepts %d in a message and would refuse this node's messages; write no more, or "+
				"raise its %s",
				d.Name, limit, ownPath(batchHashesKey))
		}
	}
}

// compareDirectoryPair returns problems about ports that two directories both bind on one host, and about values that
// must be equal if the directories share a log.
func compareDirectoryPair(a, b *Directory) (problems []Problem) {
	add := func(field string, value any, remedy string, args ...any) {
		problems = append(problems, Problem{Code: Disagree, File: b.Name, Field: field, Value: fmt.Sprint(value),
			Remedy: fmt.Sprintf(remedy, args...)})
	}
	for _, m := range b.Monitors {
		for _, port := range []uint16{m.Pull, m.Reply, m.Heartbeat} {
			for _, host := range b.hostNames() {
				if as := a.boundPurpose(protocol.Endpoint{Host: host, Port: port}, a.hostNames()); as != "" {
					add(monitorPortsKey, port, "%s has this port on the same host, as its %s port; give one of them another", a.Name,
						as)
					break
				}
			}
		}
	}
	x, y := &a.Shared, &b.Shared
	if x.Addr.Host == "" || x.Addr != y.Addr || x.Stream != y.Stream {
		return problems
	}
	if x.TLS != y.TLS {
		add(ownPath(logTLSKey), y.TLS, "%s has %t for the same log, and a server accepts only one of the two at a port; set "+
			"the same on both", a.Name, x.TLS)
	}
	if x.Password != y.Password {
		add(ownPath(logPasswordKey), masked, "%s has another password for the same log, but the default user has only one; "+
			"set the same on both",
			a.Name)
	}
	if x.Bytes != y.Bytes {
		add(ownPath(logBytesKey), y.Bytes, "%s has %d for the same log, and the smaller value applies to all; set the same "+
			"on both",
			a.Name, x.Bytes)
	}
	if a.WorkerTimeout != b.WorkerTimeout || a.OnlyHeartbeats != b.OnlyHeartbeats {
		add(workerTimeoutKey, b.DescribeTimeout(), "%s shares the log and has: %s; one directory would drop workers that the "+
			"other still names, so set %s and %s to the same on both", a.Name, a.DescribeTimeout(), workerTimeoutKey,
			healthCheckKey)
	}
	return problems
}

// A directoryPort is the purpose of a port of a directory.
type directoryPort string

const (
	pullPort      directoryPort = "pull"
	replyPort     directoryPort = "reply"
	heartbeatPort directoryPort = "heartbeat"
)

func (m *MonitorPorts) portFor(purpose directoryPort) uint16 {
	switch purpose {
	case pullPort:
		return m.Pull
	case replyPort:
		return m.Reply
	case heartbeatPort:
		return m.Heartbeat
	}
	return 0
}

// mayListenAt reports whether an address may be this port of the directory. A host name may refer to any host, and a
// port that the system chooses may have any number.
func (d *Directory) mayListenAt(at protocol.Endpoint, purpose directoryPort) bool {
	if !d.mayHaveHost(at.Host) {
		return false
	}
	return slices.ContainsFunc(d.Monitors, func(m MonitorPorts) bool {
		return m.portFor(purpose) == at.Port || m.portFor(purpose) == 0
	})
}

func (d *Directory) mayHaveHost(host string) bool {
	if d.Host == "" || slices.Contains(d.hostNames(), host) {
		return true
	}
	if isLoopbackHost(d.Host) || isLoopbackHost(host) {
		return isLoopbackHost(d.Host) && isLoopbackHost(host)
	}
	return !(protocol.Endpoint{Host: d.Host}).IsNumeric() || !(protocol.Endpoint{Host: host}).IsNumeric()
}

// boundPurpose returns the purpose for which the directory binds an endpoint, on a host that has the given names. The
// result is "" if the directory does not bind the endpoint.
func (d *Directory) boundPurpose(at protocol.Endpoint, hosts []string) directoryPort {
	if at.Port == 0 || !slices.Contains(hosts, at.Host) {
		return ""
	}
	for _, m := range d.Monitors {
		for _, purpose := range []directoryPort{pullPort, replyPort, heartbeatPort} {
			if m.portFor(purpose) == at.Port {
				return purpose
			}
		}
	}
	return ""
}

// hostNames returns the names that the file has for the directory's host.
func (d *Directory) hostNames() (all []string) {
	for _, host := range []string{d.Host, d.Advertise} {
		if host != "" && !slices.Contains(all, host) {
			all = append(all, host)
		}
	}
	return all
}

// formatAddrs renders the addresses of the directory's ports of a kind. A directory that binds every interface is
// rendered with the given host.
func (d *Directory) formatAddrs(purpose directoryPort, host string) string {
	if d.Host != "" {
		host = d.Host
	}
	var all []string
	for _, m := range d.Monitors {
		all = append(all, protocol.Endpoint{Host: host, Port: m.portFor(purpose)}.String())
	}
	return strings.Join(all, " or ")
}

// hasHeartbeatPort reports whether the directory has a port for heartbeats.
func (d *Directory) hasHeartbeatPort() bool {
	return slices.ContainsFunc(d.Monitors, func(m MonitorPorts) bool { return m.HasHeartbeat })
}

// DescribeTimeout describes the workers that the directory drops.
func (d *Directory) DescribeTimeout() string {
	switch {
	case d.WorkerTimeout == 0:
		return "no worker is dropped"
	case d.OnlyHeartbeats:
		return fmt.Sprintf("workers that send heartbeats are dropped after %v", d.WorkerTimeout)
	default:
		return fmt.Sprintf("workers are dropped after %v", d.WorkerTimeout)
	}
}

// isLoopbackHost reports whether host is localhost or an address of the loopback interface, which also may be an IPv4
// address in the form of IPv6.
func isLoopbackHost(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}
