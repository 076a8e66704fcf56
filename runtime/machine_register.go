package runtime

import (
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/runtime/config"
)

// registerOf translates what a configuration says of registered blocks.
func registerOf(c *rank.Config, cfg *config.Config, index int) {
	r := &cfg.Register
	if !r.Enabled {
		return
	}
	c.Registering = rank.Registering{
		Geometry: cfg.Geometry(index), EngineID: r.EngineID, RegistrationLease: nanos(r.Lease),
		RegisterTimeout: nanos(r.Timeout), ExactIDs: r.ExactIDs, ReceptionsMax: r.Receptions, ProducersMax: r.Producers,
		FinishedMax: r.Batches, RegistrationsMax: r.Registrations, ExpectedMax: r.Expected, NamesMax: r.Names,
		RegisterWindow: uint16(r.Window),
	}
}
