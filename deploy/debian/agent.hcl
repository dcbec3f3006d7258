# Configuration of the agent, read by outpost.service with all other *.hcl and *.json files of this directory.
# All settings: /usr/share/doc/outpost/agent.hcl.example. Test a change with: outpost validate /etc/outpost
data_dir = "/var/lib/outpost"

# Loopback only. For another address, configure a certificate first: see "TLS" in /usr/share/doc/outpost.
#bind_addr = "10.0.0.1"

client {
  enabled = true
}
