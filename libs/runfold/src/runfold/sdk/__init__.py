"""The author's side: tools, agents and apps, and how the runtime reaches them (the port ``Agents``).

* ``values``      what an author's function returns or raises
* ``context``     what a tool is told of its execution
* ``signature``   from a Python function to its schema, without the context
* ``tools``       ``@tool`` and what can be said of a tool
* ``agent``       ``Agent``: a declaration, checked when it is made
* ``app``         ``App``: agents and their lifespan; ``running`` gives the port
* ``calls``       one execution, lookup or approval question
* ``threads``     sync functions, and which of them are still running
* ``encoding``    results and arguments as JSON
* ``messages``    the transcript as pydantic-ai's messages
* ``asking``      one model call
* ``live``        an agent of a running app: the port ``RunningAgent``
* ``frames``      where an exception was raised, without its texts
* ``loading``     finding an app by name
* ``revision``    the revision of its code
"""
