package serve

import (
	"fmt"

	"github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/fsm/directory/replica"
	"github.com/kvferry/kvferry/protocol"
)

// Config is that of a directory and of how it speaks. [Default] has values for each field but Heartbeat, and those that
// name a log: it has none.
type Config struct {
	Directory directory.Config
	Wire      protocol.Limits
	Log       replica.Config
	Heartbeat string // host:port of the heartbeat channel, as workers are told when they register; empty: there is none
}

// Default is for a fleet of a thousand workers.
func Default() Config {
	return Config{Directory: directory.Default(), Wire: protocol.DefaultLimits(), Log: replica.Default()}
}

// Check says what is wrong with it.
func (c *Config) Check() error {
	if err := c.Directory.Check(); err != nil {
		return err
	}
	if err := c.Log.Check(); err != nil {
		return fmt.Errorf("directory: log: %w", err)
	}
	if c.Heartbeat != "" {
		if _, err := protocol.ParseEndpoint(c.Heartbeat); err != nil {
			return fmt.Errorf("directory: heartbeat: %w", err)
		}
	}
	return nil
}
