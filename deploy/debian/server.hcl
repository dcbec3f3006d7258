# Configuration of the server, read by outpost-server.service with all other *.hcl and *.json files of this directory.
# All settings: /usr/share/doc/outpost/agent.hcl.example. Test a change with: outpost validate /etc/outpost-server
data_dir = "/var/lib/outpost-server"

# Loopback only. For another address, configure a certificate first: see "TLS" in /usr/share/doc/outpost. The unit
# allows loopback only, too: run "systemctl edit outpost-server" and add IPAddressAllow=.
#bind_addr = "10.0.0.1"

# On a host that also runs outpost.service:
#ports {
#  http    = 4648
#  cluster = 4649
#}

server {
  enabled = true
}
