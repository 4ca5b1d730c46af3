"""The acceptance trace of Runfold, told with real processes. Run it with `make demo`.

* ``world``         what lies outside Runfold: a model and a ticket system, served over HTTP, every request counted
* ``app``           the agent
* ``foreign``       a producer and an approver that know nothing of Runfold but its JSON
* ``installation``  one installation on given servers: settings, command line, topics, tables
* ``processes``     the services as child processes
* ``watching``      awaiting what happens, with a bound, and failing early when a service dies
* ``story``         the trace, step by step
* ``checks``        what must be true at its end
"""
