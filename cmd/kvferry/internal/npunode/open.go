//go:build cgo && linux

package npunode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/hccl"
	"github.com/kvferry/kvferry/runtime/hccl/comm"
	"github.com/kvferry/kvferry/runtime/npu"
	"github.com/kvferry/kvferry/runtime/npu/npuengine"
	"github.com/kvferry/kvferry/runtime/plane"
)

// An NPU holds the libraries, the device and the plane of one node. The caller closes the NPU after the node.
type NPU struct {
	comm   *comm.Library
	acl    *acl.Library
	device *npu.Device
	config hccl.Config
	plane  *hccl.Plane       // nil until the node has opened it
	engine *npuengine.Engine // nil until the first call of Engine
}

// Open loads the libraries and opens the NPU that the configuration names for the rank. If Open fails, it releases all
// resources. The error wraps ErrSetting if a change of the configuration can fix the problem.
func Open(cfg *config.Config, rank int, log *slog.Logger) (_ *NPU, err error) {
	n := &NPU{}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	// HCCL is loaded first: AscendCL may load HCCL too, and HCCL reads its environment only once.
	n.comm, err = comm.Open(comm.Options{
		Library: cfg.HCCL.Library, Sequence: commSequence(cfg.HCCL.Sequence), RDMATimeout: int(cfg.HCCL.RDMATimeout),
		RDMARetries: int(cfg.HCCL.RDMARetries), DescMax: int(cfg.HCCL.Descriptors),
	})
	if err != nil {
		return nil, err
	}
	if n.acl, err = acl.Open(acl.Options{Library: cfg.NPU.Library}); err != nil {
		return nil, err
	}
	logLibraries(log, n.acl.Info(), n.comm.Info())
	visible, err := n.acl.DeviceCount()
	if err != nil {
		return nil, err
	}
	index := cfg.Device.NPUIndex(rank, visible)
	if index >= visible {
		return nil,
			fmt.Errorf("%w: pd_buffer_device is %v, and %d NPUs are visible; use npu:0 to npu:%d, or look at "+
				"ASCEND_RT_VISIBLE_DEVICES and npu-smi info",
				ErrSetting, cfg.Device, visible, visible-1)
	}
	self, err := n.rankEntry(cfg, rank, acl.DeviceID(index))
	if err != nil {
		return nil, err
	}
	if n.device, err = npu.Open(n.acl, npu.Options{Device: acl.DeviceID(index)}); err != nil {
		return nil, err
	}
	n.config, err = n.planeConfig(cfg, rank, self)
	return n, err
}

// rankEntry returns this node's entry in rank tables.
func (n *NPU) rankEntry(cfg *config.Config, rank int, device acl.DeviceID) (r comm.Rank, err error) {
	physical, err := n.acl.PhysicalID(device)
	if errors.Is(err, acl.Unsupported) {
		physical, err = int(device), nil // The two numbers agree as long as nothing renumbers the devices.
	}
	if err != nil {
		return r, err
	}
	r.Device = uint32(physical)
	if r.Server, err = serverID(cfg); err != nil {
		return r, err
	}
	if r.Address, r.Port, err = deviceAddress(cfg, rank, physical); err != nil {
		return r, err
	}
	pod, err := n.acl.SuperPod(device)
	switch {
	case err == nil:
		r.Pod = &comm.Pod{ID: pod.ID, Device: pod.Device}
	case !errors.Is(err, acl.Unsupported):
		return r, err
	}
	return r, nil
}

// logLibraries logs the versions of the libraries, and warns about settings that are likely to cause failures.
func logLibraries(log *slog.Logger, a acl.Info, c comm.Info) {
	log.Info("ascend", "ascendcl", a.Library, "version", a.ACL, "cann", a.CANN, "soc", a.SoC, "hccl", c.Library,
		"sequence", c.Sequence,
		"rdma_timeout", c.RDMATimeout, "rdma_retry_cnt", c.RDMARetries, "intra_roce", c.IntraRoCE)
	if c.IntraRoCE && c.IntraPCIe && strings.Contains(a.SoC, "910B") {
		log.Warn("HCCL_INTRA_ROCE_ENABLE=1 is set without HCCL_INTRA_PCIE_ENABLE=0, which this chip needs too: set both for " +
			"all nodes of the host")
	}
	for _, loaded := range []struct {
		library string
		signals []int
	}{{a.Library, a.Signals}, {c.Library, c.Signals}} {
		if len(loaded.signals) > 0 {
			log.Warn("a library has installed signal handlers that do not run on the alternate stack: such a signal on a Go "+
				"thread aborts the process",
				"library", loaded.library, "signals", loaded.signals)
		}
	}
}

// Options returns the options that give a node the device and its one plane.
func (n *NPU) Options() []runtime.Option {
	return []runtime.Option{runtime.WithDevice(n.device.Open), runtime.WithPlane(hccl.Name, n.openPlane)}
}

func (n *NPU) openPlane(ctx context.Context, env plane.Env) (plane.Plane, error) {
	p, err := hccl.Open(ctx, n.config, env)
	if err != nil {
		return nil, err
	}
	n.plane = p
	return p, nil
}

// Links counts the communicators since the start. The node must be open.
func (n *NPU) Links() *agent.Links {
	s := n.plane.Stats()
	return &agent.Links{Formed: s.FormedEpochs, Fenced: s.FencedEpochs, Expelled: s.ExpelledEpochs}
}

// Engine returns the engine that computes on the NPU. The first call creates the engine.
func (n *NPU) Engine() (agent.Engine, error) {
	if n.engine == nil {
		e, err := npuengine.New(n.acl, n.device)
		if err != nil {
			return nil, err
		}
		n.engine = e
	}
	return engine{n.engine}, nil
}

// Close releases the resources of Open. The caller must close the node first.
func (n *NPU) Close() error {
	var errs []error
	if n.engine != nil {
		errs = append(errs, n.engine.Close())
	}
	if n.device != nil {
		errs = append(errs, n.device.Close())
	}
	if n.comm != nil {
		errs = append(errs, n.comm.Close())
	}
	if n.acl != nil {
		errs = append(errs, n.acl.Close())
	}
	return errors.Join(errs...)
}

// planeConfig returns the configuration of the plane over the NPUs' links.
func (n *NPU) planeConfig(cfg *config.Config, rank int, self comm.Rank) (hccl.Config, error) {
	h := &cfg.HCCL
	listen, ok := cfg.HCCLEndpoint(rank)
	if !ok {
		return hccl.Config{}, fmt.Errorf("%w: extra_config.kvferry.hccl.port has no port for rank %d; add a port", ErrSetting, rank)
	}
	return hccl.Config{
		Context: n.device.Context(), OnReadQueued: n.device.RecordRead, Library: n.comm, SoC: n.acl.Info().SoC, Rank: self,
		UseRootInfo:  h.Bootstrap == config.BootstrapRootInfo,
		TrafficClass: unlessDefault(h.TrafficClass), ServiceLevel: unlessDefault(h.ServiceLevel),
		Host: listen.Host, Port: listen.Port,
		TransferTimeout: h.TransferTimeout, PrepareTimeout: h.PrepareTimeout, RebuildTries: int(h.RebuildTries),
		Window: int(h.Window), BatchDescriptors: int(h.Descriptors), MaxLinks: int(h.Links),
	}, nil
}

func commSequence(s config.Sequence) comm.Sequence {
	switch s {
	case config.SequenceGlobal:
		return comm.Global
	case config.SequenceExchange:
		return comm.Exchange
	case config.SequenceAuto:
	}
	return 0 // The library chooses.
}

func unlessDefault(v uint32) *uint32 {
	if v == config.HCCLDefault {
		return nil
	}
	return &v
}
