/** The frame of all views: navigation, the current view, dialogs of the page, and its keys. */
import { signal } from '@preact/signals'
import type { ComponentType, JSX } from 'preact'
import { useLayoutEffect, useRef, useState } from 'preact/hooks'
import { Button } from '../components/button.tsx'
import { Dialog } from '../components/dialog.tsx'
import { toggleTimes } from '../components/format.tsx'
import { Failure, Loading, RenderGuard } from '../components/states.tsx'
import { View } from '../components/view.tsx'
import { useKeys } from './keys.ts'
import { KeyList } from './key-list.tsx'
import { Link } from '../components/link.tsx'
import { matchPath, navigate, path } from './location.ts'
import { LoginDialog } from './login.tsx'
import { loginRequested } from './login-request.ts'
import { Palette, useCommands } from './palette.tsx'
import { ROUTES } from './routes.ts'
import { type Section, SECTIONS } from './sections.ts'
import type { ViewProps } from './view-props.ts'
import { features, isSealed, logOut, sessionRound, token, tokenInfo } from './session.ts'
import { Toasts } from './toasts.tsx'

const isPaletteOpen = signal(false)
const areKeysShown = signal(false)
const isNavigationOpen = signal(false)

export function Shell() {
  const sections = SECTIONS.filter(({ isAvailable }) => isAvailable())
  useKeys('Everywhere', [
    { keys: 'Mod+k', label: 'Open the command palette', run: () => (isPaletteOpen.value = true), inFields: true },
    { keys: '?', label: 'Show keyboard shortcuts', run: () => (areKeysShown.value = true) },
    { keys: '/', label: 'Search in the view', run: focusSearch },
    { keys: 'T', label: 'Show exact times, or relative ones', run: toggleTimes },
    ...sections.map(({ key, path: to, title }) => ({
      keys: `g ${key}`,
      label: `Go to ${title}`,
      run: () => navigate(to),
    })),
  ])
  const isLoggedIn = token.value !== undefined
  useCommands(
    [
      { title: 'Show exact times, or relative ones', group: 'Page', isLast: true, run: toggleTimes },
      isLoggedIn
        ? { title: 'Log out', group: 'Session', isLast: true, run: () => void logOut() }
        : { title: 'Log in', group: 'Session', isLast: true, run: () => (loginRequested.value = true) },
    ],
    [isLoggedIn],
  )
  if (path.value === '/') {
    const first = sections[0]
    if (features.value !== undefined && first) navigate(first.path, { replace: true })
  }
  return (
    <div class="shell">
      <a class="skip" href="#view">
        Skip to the content
      </a>
      <Navigation sections={sections} />
      <main id="view" tabIndex={-1}>
        {isSealed.value && path.value !== '/seal' && <SealedBanner />}
        <CurrentView />
      </main>
      {isPaletteOpen.value && <Palette sections={sections} close={() => (isPaletteOpen.value = false)} />}
      {areKeysShown.value && (
        <Dialog title="Keys" close={hideKeys}>
          <KeyList close={hideKeys} />
        </Dialog>
      )}
      {loginRequested.value && <LoginDialog />}
      <Toasts />
    </div>
  )
}

function hideKeys(): void {
  areKeysShown.value = false
}

/** A view marks its search field with `data-search`. */
function focusSearch(): void {
  const field = document.querySelector('[data-search]')
  if (field instanceof HTMLElement) field.focus()
}

function SealedBanner() {
  return (
    <p class="banner banner-warning" role="alert">
      The secrets core is sealed: secrets cannot be read or written. <Link to="/seal">Unseal it</Link>
    </p>
  )
}

function Navigation({ sections }: { readonly sections: readonly Section[] }) {
  const groups = [...new Set(sections.map(({ group }) => group))]
  const isOpen = isNavigationOpen.value
  const element = useRef<HTMLElement>(null)
  const close = () => {
    isNavigationOpen.value = false
    element.current?.querySelector<HTMLElement>('.navigation-toggle')?.focus()
  }
  useKeys('Menu', isOpen ? [{ keys: 'Escape', label: '', run: close }] : [])
  return (
    <header ref={element} class={isOpen ? 'navigation navigation-open' : 'navigation'}>
      <div class="navigation-head">
        <Link to="/" class="brand">
          outpost
        </Link>
        <Button class="navigation-toggle" expanded={isOpen} onClick={() => (isNavigationOpen.value = !isOpen)}>
          Menu
        </Button>
      </div>
      <nav aria-label="Views">
        {groups.map((group) => (
          <section key={group}>
            <h2>{group}</h2>
            <ul>
              {sections
                .filter((section) => section.group === group)
                .map((section) => (
                  <li key={section.path}>
                    <NavigationLink section={section} />
                  </li>
                ))}
            </ul>
          </section>
        ))}
      </nav>
      <Account />
    </header>
  )
}

/** The link is hidden with the menu, so the focus moves to the view. */
function leaveMenu(): void {
  if (isNavigationOpen.value) document.getElementById('view')?.focus()
  isNavigationOpen.value = false
}

function NavigationLink({ section: { key, path: to, title } }: { readonly section: Section }) {
  const isCurrent = path.value === to || path.value.startsWith(`${to}/`)
  return (
    <Link to={to} current={isCurrent} title={`g ${key}`} onOpen={leaveMenu}>
      {title}
    </Link>
  )
}

function Account() {
  const name = tokenInfo.value?.display_name
  return (
    <div class="account">
      <Button onClick={() => (isPaletteOpen.value = true)} title="Ctrl+K or ⌘K">
        Commands
      </Button>
      {token.value === undefined ? (
        <Button onClick={() => (loginRequested.value = true)}>Log in</Button>
      ) : (
        <>
          <p class="account-name" title={tokenInfo.value?.accessor}>
            {name ?? 'Token'}
          </p>
          <Button onClick={() => void logOut()}>Log out</Button>
        </>
      )}
      <Button onClick={() => (areKeysShown.value = true)} title="?">
        Keys
      </Button>
    </div>
  )
}

interface LoadedView {
  readonly pattern: string
  readonly Current?: ComponentType<ViewProps>
  readonly error?: Error
}

function CurrentView(): JSX.Element {
  const matched = ROUTES.map((route) => ({ route, params: matchPath(route.pattern, path.value) })).find(
    ({ params }) => params !== undefined,
  )
  const route = matched?.route
  const [loaded, setLoaded] = useState<LoadedView>()
  // Not after the next frame: the view is needed for it.
  useLayoutEffect(() => {
    if (!route) return undefined
    let isLeft = false
    // Another view may be open before this one is loaded.
    const setCurrent = (view: LoadedView) => isLeft || setLoaded(view)
    route.load().then(
      ({ default: Current }) => setCurrent({ pattern: route.pattern, Current }),
      (error: unknown) =>
        setCurrent({ pattern: route.pattern, error: error instanceof Error ? error : new Error('failed') }),
    )
    return () => void (isLeft = true)
  }, [route])
  if (!route || !matched?.params) return <NotFound />
  if (loaded?.pattern !== route.pattern) return <Loading label="Loading the view" />
  if (loaded.error) {
    return (
      <View title="No view">
        <Failure error={loaded.error} hint="The server may have a new version: reload the page." />
      </View>
    )
  }
  const { Current } = loaded
  // A key of the address and of the session: each object has a view of its own, without state of the one before.
  return Current ? (
    <RenderGuard key={`${sessionRound.value} ${path.value}`}>
      <Current params={matched.params} />
    </RenderGuard>
  ) : (
    <NotFound />
  )
}

function NotFound() {
  if (path.value === '/') return <Loading label="Connecting" />
  return (
    <View title="No view">
      <Failure error={new Error(`There is no view at ${path.value}.`)} hint="Choose a view in the navigation." />
    </View>
  )
}
